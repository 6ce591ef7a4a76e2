//! What a case says in place of the source: as arguments, or by assignment after construction,
//! which comes to the same where nothing is read between.

use meshwork_cluster_resolver::ClusterResolver;
use serde_json::Value;

/// This resolver with the task, the layer and the environment of the arguments; null means none.
pub(crate) fn overridden(
    resolver: impl ClusterResolver + 'static,
    arguments: &Value,
) -> Box<dyn ClusterResolver> {
    let mut resolver: Box<dyn ClusterResolver> = Box::new(resolver);
    resolver = match arguments.get("task_type") {
        None => resolver,
        Some(Value::Null) => Box::new(resolver.without_task_type()),
        Some(job) => Box::new(resolver.with_task_type(text(job))),
    };
    resolver = match arguments.get("task_id") {
        None => resolver,
        Some(Value::Null) => Box::new(resolver.without_task_id()),
        Some(index) => {
            let index = index.as_u64().and_then(|index| u32::try_from(index).ok());
            Box::new(resolver.with_task_id(index.expect("an index")))
        }
    };
    resolver = match arguments.get("rpc_layer") {
        None => resolver,
        Some(Value::Null) => Box::new(resolver.without_rpc_layer()),
        Some(layer) => Box::new(resolver.with_rpc_layer(text(layer))),
    };
    match arguments.get("environment") {
        None | Some(Value::Null) => resolver,
        Some(environment) => Box::new(resolver.with_environment(text(environment))),
    }
}

/// The arguments that say something: for functions to which null says nothing.
pub(crate) fn said(arguments: &Value) -> Value {
    let said = arguments.as_object().into_iter().flatten();
    let said = said.filter(|(_, value)| !value.is_null());
    Value::Object(
        said.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a recorded text")
}
