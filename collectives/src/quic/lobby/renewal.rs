use std::sync::Arc;
use std::time::SystemTime;

use quinn::Endpoint;

use super::Lobby;
use crate::identity::RENEWAL;
use crate::quic::endpoint;

/// Shows a new certificate to whoever calls, before the old one is over, for as long as the group
/// lasts.
pub(in crate::quic) async fn renew(lobby: Arc<Lobby>, endpoint: Endpoint) {
    loop {
        tokio::time::sleep(RENEWAL / 4).await;
        match lobby.identity.renew(SystemTime::now()) {
            Ok(true) => {
                let server = endpoint::server(&lobby.identity, lobby.network);
                endpoint.set_server_config(Some(server));
                tracing::debug!(rank = lobby.me.number(), "a new certificate is shown");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(rank = lobby.me.number(), %error, "the old certificate stays");
            }
        }
    }
}
