//! Why certificates of the user's own are of no use.

/// Why others would not believe a rank by its certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// It is too old or too new, by the clock of this host.
    #[error("it is not valid at this time; renew it, or set this host's clock")]
    Expired,
    /// It is for other names.
    #[error("it is for other names; have it issued for this DNS name")]
    OtherName,
    /// No authority of the file with authorities has issued it.
    #[error(
        "none of the authorities in MESHWORK_CERTIFICATE_AUTHORITY_FILE has issued it; add those between it and them"
    )]
    UnknownAuthority,
    /// It is not for both parts of TLS.
    #[error("it is not for both parts of TLS; have it issued for serverAuth and clientAuth")]
    Purpose,
    /// The key belongs to another certificate.
    #[error("the key is not that of the certificate; renew both together")]
    OtherKey,
    /// It cannot be used at all.
    #[error("it cannot be used; look at it by 'openssl x509 -text'")]
    Malformed,
}
