use rustls::crypto::{CryptoProvider, ring};

/// Sees to it that the process has a cryptography provider, which the clients take over. A program
/// that chose one keeps it.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Where another thread chose one meanwhile, that one serves as well.
        drop(ring::default_provider().install_default());
    }
}
