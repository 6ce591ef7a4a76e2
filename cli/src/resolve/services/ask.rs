//! The resolvers that ask, made from what was said.

use meshwork_cluster_resolver::{
    ClusterResolver, GceResolver, KubernetesAccess, KubernetesResolver, Patience, TpuResolver,
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
        let lacking = |argument| ResolveError::ArgumentMissing {
            asked: Source::Gce,
            argument,
        };
        let needed =
            |value: &Option<String>, argument| value.clone().ok_or_else(|| lacking(argument));
        let resolver = GceResolver::new(
            needed(&self.project, "--project")?,
            needed(&self.zone, "--zone")?,
            needed(&self.instance_group, "--instance-group")?,
            self.port.ok_or_else(|| lacking("--port"))?,
        );
        let resolver = resolver.with_own_task_id().with_variables(variables);
        Ok(Box::new(resolver.with_patience(self.patience())))
    }

    pub(in super::super) fn kubernetes(&self, variables: Variables) -> Box<dyn ClusterResolver> {
        let mut resolver = KubernetesResolver::new()
            .with_variables(variables)
            .with_patience(self.patience());
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
            .with_patience(self.patience());
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

    fn patience(&self) -> Patience {
        self.deadline.map_or_else(Patience::default, Patience::new)
    }
}
