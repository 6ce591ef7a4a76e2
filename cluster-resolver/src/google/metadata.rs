//! The metadata server, which knows the machine it is asked from.

use std::net::Ipv6Addr;

use super::Session;
use crate::error::{Error, ServiceError};
use crate::explanation::{Explanation, Origin, Question};
use crate::service::answer::{self, Answer};
use crate::service::http::{Request, below};
use crate::service::secret::Secret;
use crate::variables::Variables;

/// Where the metadata server of a machine in Google's cloud is, without a slash at the end.
///
/// `GCE_METADATA_HOST` names it, else `GCE_METADATA_IP`, else it has its usual name. An empty
/// variable counts as unset.
///
/// ```
/// use meshwork_cluster_resolver::{Variables, metadata_url};
///
/// let variables = Variables::fixed([("GCE_METADATA_HOST", "127.0.0.1:8080")]);
/// assert_eq!(metadata_url(&variables)?, "http://127.0.0.1:8080");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotUnicode`].
pub fn metadata_url(variables: &Variables) -> Result<String, Error> {
    for name in ["GCE_METADATA_HOST", "GCE_METADATA_IP"] {
        if let Some(host) = variables.read_nonempty(name)? {
            let bare = host.parse::<Ipv6Addr>().is_ok();
            return Ok(if bare {
                format!("http://[{host}]")
            } else {
                format!("http://{host}")
            });
        }
    }
    Ok("http://metadata.google.internal".to_owned())
}

impl Session {
    /// A text that the metadata server knows, such as `project/project-id`, without blanks around
    /// it; `None` if it does not know it.
    pub(crate) async fn metadata(
        &self,
        path: &str,
        notes: &mut Explanation,
        about: Question,
    ) -> Result<Option<String>, ServiceError> {
        let request = self.metadata_request(path)?;
        let reply = match self.metadata_http.ask(&self.call, &request).await {
            Err(ServiceError::Refused {
                status: 404, url, ..
            }) => {
                notes.absent(about, Origin::url(&url));
                return Ok(None);
            }
            reply => reply?,
        };
        let text = String::from_utf8_lossy(&reply.body).trim().to_owned();
        notes.read(about, Origin::url(&reply.url), text.clone());
        Ok(Some(text))
    }

    /// A token for the account of this machine.
    pub(super) async fn machine_token(&self) -> Result<Secret, ServiceError> {
        let request = self
            .metadata_request("instance/service-accounts/default/token")?
            .with_query("scopes", super::credentials::SCOPE);
        let reply = self.metadata_http.ask(&self.call, &request).await?;
        // The answer is a secret, so no part of it may get into an error.
        let malformed = |field: &str| ServiceError::Field {
            url: reply.url.clone(),
            field: field.to_owned(),
            found: "not shown".to_owned(),
            expected: "a token",
        };
        let value =
            answer::parse(&reply.url, &reply.body, None).map_err(|_| malformed("the whole"))?;
        let token = Answer::new(&reply.url, &value)
            .at("access_token")
            .full_text();
        token
            .map(Secret::new)
            .map_err(|_| malformed("access_token"))
    }

    fn metadata_request(&self, path: &str) -> Result<Request<'static>, ServiceError> {
        let segments = ["computeMetadata", "v1"].into_iter().chain(path.split('/'));
        Ok(Request::get(below(&self.metadata, segments)?).of_metadata_server())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_wins_over_the_ip_and_empty_counts_as_unset() {
        let check = |variables: &[(&str, &str)], url: &str| {
            let variables = Variables::fixed(variables.iter().copied());
            assert_eq!(metadata_url(&variables).as_deref(), Ok(url));
        };
        check(&[], "http://metadata.google.internal");
        check(
            &[("GCE_METADATA_HOST", "h:9"), ("GCE_METADATA_IP", "1.2.3.4")],
            "http://h:9",
        );
        check(
            &[("GCE_METADATA_HOST", ""), ("GCE_METADATA_IP", "1.2.3.4")],
            "http://1.2.3.4",
        );
        check(
            &[("GCE_METADATA_IP", "")],
            "http://metadata.google.internal",
        );
        check(
            &[("GCE_METADATA_IP", "fd20:ce::254")],
            "http://[fd20:ce::254]",
        );
    }
}
