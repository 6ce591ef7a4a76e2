//! Answers of the Compute API, as an ordered list of machines.

use serde_json::Value;

use crate::address;
use crate::error::ServiceError;
use crate::explanation::Origin;
use crate::service::answer::Answer;
use crate::service::order;

/// One page of the list of a group's instances.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) instances: Vec<Instance>,
    /// What asks for the next page, if there is one.
    pub(super) next: Option<String>,
}

/// The name of a machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Instance(String);

/// A machine and where it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Member {
    instance: Instance,
    host: String,
    origin: Origin,
}

impl Page {
    /// Reads an answer to `listInstances`; a group without running machines has no list.
    pub(super) fn read(url: &str, answer: &Value) -> Result<Self, ServiceError> {
        let answer = Answer::new(url, answer);
        answer.object()?;
        let instances = answer.at("items").list()?.into_iter().map(|item| {
            let link = item.at("instance");
            // A link to the machine, or its bare name.
            match link.full_text()?.rsplit('/').next() {
                Some(name) if !name.is_empty() => Ok(Instance(name.to_owned())),
                _ => Err(link.unexpected("a link that ends with a name")),
            }
        });
        let next = answer.at("nextPageToken").optional_text()?;
        Ok(Self {
            instances: instances.collect::<Result<_, _>>()?,
            next: next.filter(|next| !next.is_empty()).map(str::to_owned),
        })
    }
}

impl Instance {
    pub(super) fn name(&self) -> &str {
        &self.0
    }
}

impl Member {
    /// Reads the description of a machine.
    pub(super) fn read(
        instance: Instance,
        url: &str,
        answer: &Value,
    ) -> Result<Self, ServiceError> {
        let interfaces = Answer::new(url, answer).at("networkInterfaces");
        let all = interfaces.list()?;
        let first = all
            .first()
            .ok_or_else(|| interfaces.unexpected("a list of at least one interface"))?;
        let (v4, v6) = (first.at("networkIP"), first.at("ipv6Address"));
        // A machine with IPv6 only has no networkIP.
        let only_v6 = !v4.is_present() && v6.is_present();
        let host = if only_v6 { v6 } else { v4 };
        Ok(Self {
            instance,
            host: host.full_text()?.to_owned(),
            origin: Origin::url(url).field(host.field()),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.instance.name()
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Where the host was read.
    pub(super) fn origin(&self) -> Origin {
        self.origin.clone()
    }

    pub(super) fn address(&self, port: u16) -> String {
        address::join(&self.host, port)
    }
}

/// Puts the machines in the order of their tasks.
pub(super) fn sort(members: &mut [Member]) {
    members.sort_by(|a, b| order::natural(a.name(), b.name()));
}

/// The task that the machine with this name is.
pub(super) fn position(members: &[Member], name: &str) -> Option<u32> {
    let at = members.iter().position(|member| member.name() == name);
    at.and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URL: &str = "http://compute";

    fn names(answer: &Value) -> Result<Vec<String>, ServiceError> {
        let page = Page::read(URL, answer)?;
        Ok(page
            .instances
            .into_iter()
            .map(|instance| instance.0)
            .collect())
    }

    #[track_caller]
    fn check_field<T: std::fmt::Debug>(read: Result<T, ServiceError>, name: &str, value: &str) {
        let Err(ServiceError::Field { field, found, .. }) = &read else {
            panic!("{read:?}");
        };
        assert_eq!((field.as_str(), found.as_str()), (name, value));
    }

    #[test]
    fn links_and_bare_names_name_machines() {
        let link = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/a";
        let answer = json!({"items": [{"instance": link}, {"instance": "b"}]});
        assert_eq!(names(&answer), Ok(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn a_page_may_be_empty_and_may_have_a_successor() {
        for answer in [json!({}), json!({"items": []}), json!({"items": null})] {
            assert_eq!(names(&answer), Ok(Vec::new()));
        }
        let next = |token: Value| {
            Page::read(URL, &json!({"nextPageToken": token}))
                .unwrap()
                .next
        };
        assert_eq!(next(json!("t")).as_deref(), Some("t"));
        assert_eq!((next(json!("")), next(Value::Null)), (None, None));
    }

    #[test]
    fn what_is_no_page_is_refused_by_field_and_value() {
        check_field(names(&json!([1])), "", "[1]");
        check_field(names(&json!({"items": 3})), "items", "3");
        let broken = json!({"items": [{"instance": "a"}, {"instance": ""}]});
        check_field(names(&broken), "items[1].instance", "\"\"");
        check_field(
            names(&json!({"items": [{}]})),
            "items[0].instance",
            "absent",
        );
        check_field(
            names(&json!({"items": [{"instance": "x/"}]})),
            "items[0].instance",
            "\"x/\"",
        );
    }

    fn host(answer: &Value) -> Result<String, ServiceError> {
        let member = Member::read(Instance("a".to_owned()), URL, answer)?;
        Ok(member.address(7))
    }

    #[test]
    fn the_first_interface_counts_and_ipv6_alone_is_bracketed() {
        let two =
            json!({"networkInterfaces": [{"networkIP": "10.0.0.1"}, {"networkIP": "9.9.9.9"}]});
        assert_eq!(host(&two).as_deref(), Ok("10.0.0.1:7"));
        let v6 = json!({"networkInterfaces": [{"ipv6Address": "fd20::1"}]});
        assert_eq!(host(&v6).as_deref(), Ok("[fd20::1]:7"));
        let none = json!({"networkInterfaces": []});
        check_field(host(&none), "networkInterfaces", "[]");
        let no_ip = json!({"networkInterfaces": [{}]});
        check_field(host(&no_ip), "networkInterfaces[0].networkIP", "absent");
    }

    #[test]
    fn tasks_follow_the_numbers_in_names() {
        let member = |name: &str| Member {
            instance: Instance(name.to_owned()),
            host: String::new(),
            origin: Origin::program(),
        };
        let mut members = ["w10", "w9", "w1"].map(member);
        sort(&mut members);
        assert_eq!(members.each_ref().map(Member::name), ["w1", "w9", "w10"]);
        assert_eq!(position(&members, "w9"), Some(1));
        assert_eq!(position(&members, "other"), None);
    }
}
