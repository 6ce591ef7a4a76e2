use std::sync::Arc;
use std::time::SystemTime;

use quinn::Endpoint;

use super::Admission;
use crate::identity::RENEWAL;
use crate::quic::endpoint;

/// Shows a new certificate to whoever calls, before the old one is over, for as long as the group
/// lasts.
pub(in crate::quic) async fn renew(admission: Arc<Admission>, endpoint: Endpoint) {
    loop {
        tokio::time::sleep(RENEWAL / 4).await;
        match admission.identity.renew(SystemTime::now()) {
            Ok(true) => {
                let server = endpoint::server(&admission.identity, admission.network);
                endpoint.set_server_config(Some(server));
                tracing::debug!(rank = admission.me.number(), "a new certificate is shown");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(rank = admission.me.number(), %error, "the old certificate stays");
            }
        }
    }
}
