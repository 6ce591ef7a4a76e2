//! The resolvers that ask, made from what was said.

use meshwork_cluster_resolver::{
    ClusterResolver, GceResolver, KubernetesAccess, KubernetesResolver, RetryPolicy, TpuResolver,
    Variables,
};

use super::super::ResolveError;
use super::super::source::Source;
use super::Services;

impl Services {
    pub(in super::super) fn gce(
        &self,
        variables: Variables,
    ) -> Result<Box<dyn ClusterResolver>, ResolveError> {
        let (Some(project), Some(zone), Some(group), Some(port)) =
            (&self.project, &self.zone, &self.instance_group, self.port)
        else {
            return Err(self.lacking(
                Source::Gce,
                &["--project", "--zone", "--instance-group", "--port"],
            ));
        };
        let resolver = GceResolver::new(project, zone, group, port);
        let resolver = resolver.with_own_task_id().with_variables(variables);
        Ok(Box::new(resolver.with_retry_policy(self.retry_policy())))
    }

    pub(in super::super) fn kubernetes(&self, variables: Variables) -> Box<dyn ClusterResolver> {
        let mut resolver = KubernetesResolver::new()
            .with_variables(variables)
            .with_retry_policy(self.retry_policy());
        for (job, selectors) in self.jobs() {
            resolver = resolver.with_job(job, selectors);
        }
        if let Some(port) = self.port {
            resolver = resolver.with_port(port);
        }
        if let Some(namespace) = &self.namespace {
            resolver = resolver.with_namespace(namespace);
        }
        if let Some(file) = &self.kubeconfig {
            resolver = resolver.with_access(KubernetesAccess::kubeconfig(file));
        }
        Box::new(resolver)
    }

    /// The selectors of each job together, jobs in the order of their first ones.
    fn jobs(&self) -> Vec<(&str, Vec<&str>)> {
        let mut jobs: Vec<(&str, Vec<&str>)> = Vec::new();
        for (job, labels) in &self.selector {
            match jobs.iter_mut().find(|(known, _)| known == job) {
                Some((_, all)) => all.push(labels),
                None => jobs.push((job, vec![labels])),
            }
        }
        jobs
    }

    pub(in super::super) fn tpu(&self, variables: Variables) -> Box<dyn ClusterResolver> {
        let mut resolver = TpuResolver::new()
            .with_variables(variables)
            .with_retry_policy(self.retry_policy());
        if let Some(tpu) = &self.tpu {
            resolver = resolver.with_tpu(tpu);
        }
        if let Some(project) = &self.project {
            resolver = resolver.with_project(project);
        }
        if let Some(zone) = &self.zone {
            resolver = resolver.with_zone(zone);
        }
        Box::new(resolver)
    }

    /// The error that names those of these arguments that were not given.
    fn lacking(&self, asked: Source, needed: &[&'static str]) -> ResolveError {
        let said = self.said();
        let missing = said
            .into_iter()
            .filter(|(said, argument, _)| !said && needed.contains(argument));
        ResolveError::ArgumentsMissing {
            asked,
            arguments: missing.map(|(_, argument, _)| argument).collect(),
        }
    }

    fn retry_policy(&self) -> RetryPolicy {
        self.deadline
            .map_or_else(RetryPolicy::default, RetryPolicy::new)
    }
}
