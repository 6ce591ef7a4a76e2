//! Where the status is served, and to whom.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::access::{LENGTHS, Token};
use crate::error::Error;

/// Where a rank serves its status, and who may ask.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<Token>,
    pub(crate) folder: Option<PathBuf>,
}

impl Settings {
    /// The environment variable for the address, as in `127.0.0.1:9464`. With port 0 the system
    /// chooses one; otherwise rank `k` of a host takes the `k`-th from this one on. Ranks keep
    /// theirs when members change: where another has it, a newcomer takes one that is free below.
    pub const ENV: &'static str = "MESHWORK_STATUS";
    /// The environment variable for the file with the token.
    pub const TOKEN_FILE_ENV: &'static str = "MESHWORK_STATUS_TOKEN_FILE";
    /// The environment variable for the folder in which ranks say where they are asked.
    pub const FOLDER_ENV: &'static str = "MESHWORK_STATUS_FOLDER";

    /// At a loopback address, for all users of this host.
    ///
    /// # Errors
    /// [`Error::NoToken`] for an address that other hosts can reach.
    pub fn new(address: SocketAddr) -> Result<Self, Error> {
        Self::with(address, None)
    }

    /// At any address, for all who have the token.
    #[must_use]
    pub fn with_token(address: SocketAddr, token: Token) -> Self {
        Self {
            address,
            token: Some(token),
            folder: None,
        }
    }

    fn with(address: SocketAddr, token: Option<Token>) -> Result<Self, Error> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(Error::NoToken { address });
        }
        Ok(Self {
            address,
            token,
            folder: None,
        })
    }

    /// Says in a file of this folder where the rank is asked, for as long as it is.
    #[must_use]
    pub fn with_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// What the environment says; `None` where [`ENV`](Self::ENV) is not set.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::NoToken`], [`Error::Token`], [`Error::File`].
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let Some(value) = variable(Self::ENV) else {
            return Ok(None);
        };
        let text = value.to_str().and_then(|text| text.parse().ok());
        let address = text.ok_or_else(|| Error::Address {
            value: value.to_string_lossy().into_owned(),
        })?;
        let token = variable(Self::TOKEN_FILE_ENV);
        let token = token.map(|path| Token::from_file(Path::new(&path)));
        let mut settings = Self::with(address, token.transpose()?)?;
        // An empty one would be the folder in which the program happens to be.
        let folder = variable(Self::FOLDER_ENV).filter(|folder| !folder.is_empty());
        settings.folder = folder.map(PathBuf::from);
        Ok(Some(settings))
    }

    /// The address of this rank of its host.
    pub(crate) fn address_of(&self, local_rank: u32) -> Result<SocketAddr, Error> {
        let mut address = self.address;
        if let port @ 1.. = address.port() {
            let above = u16::try_from(local_rank).ok();
            let own = above.and_then(|above| port.checked_add(above));
            address.set_port(own.ok_or(Error::Port { port, local_rank })?);
        }
        Ok(address)
    }
}

impl Token {
    /// The token in a file, without the white space around it.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Token`].
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| Error::File {
            path: path.to_owned(),
            kind: error.kind(),
        })?;
        let text = Zeroizing::new(text);
        let token = text.trim();
        Self::new(token).ok_or_else(|| Error::Token {
            path: path.to_owned(),
            length: token.len(),
            least: *LENGTHS.start(),
            most: *LENGTHS.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_can_be_reached_from_other_hosts_needs_a_token() {
        for open in ["0.0.0.0:9464", "[::]:0", "10.0.0.1:9464"] {
            let address = open.parse().unwrap();
            let refused = Settings::new(address).unwrap_err().to_string();
            assert!(refused.contains("MESHWORK_STATUS_TOKEN_FILE"), "{refused}");
        }
        for loopback in ["127.0.0.1:0", "[::1]:9464", "127.3.2.1:80"] {
            Settings::new(loopback.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn an_empty_variable_names_no_folder() {
        let folder = |value: &str| {
            let settings = Settings::from_variables(|name| match name {
                Settings::ENV => Some("127.0.0.1:0".into()),
                Settings::FOLDER_ENV => Some(value.into()),
                _ => None,
            });
            settings.unwrap().unwrap().folder
        };
        assert_eq!(folder(""), None);
        assert_eq!(folder("job"), Some(PathBuf::from("job")));
    }

    #[test]
    fn the_ranks_of_a_host_take_one_port_after_the_other() {
        let port = |first: u16, local_rank| {
            let settings = Settings::new(([127, 0, 0, 1], first).into()).unwrap();
            settings
                .address_of(local_rank)
                .map(|address| address.port())
        };
        assert_eq!(port(9464, 0).unwrap(), 9464);
        assert_eq!(port(9464, 7).unwrap(), 9471);
        assert_eq!(port(0, 7).unwrap(), 0);
        assert!(matches!(port(65_530, 6), Err(Error::Port { .. })));
        assert!(matches!(port(1, u32::MAX), Err(Error::Port { .. })));
    }

    #[test]
    fn tokens_are_read_without_the_line_feed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        Token::from_file(&path).unwrap();
        fs::write(&path, "short\n").unwrap();
        let refused = Token::from_file(&path).unwrap_err().to_string();
        assert!(
            refused.contains("5 bytes") && refused.contains("16"),
            "{refused}"
        );
        assert!(Token::from_file(&folder.path().join("none")).is_err());
    }
}
