//! How workers are handed the job's secret: in a file, whose name is in their environment. No
//! environment that is printed, logged or dumped has the secret in it, nor that of what they start.

use std::process::Command;

use meshwork_collectives::{ConfigError, JobSecret};

use crate::LaunchError;

/// The secret of a run, and how it gets to the workers.
#[derive(Debug)]
pub(crate) struct Handed {
    secret: JobSecret,
    /// Where there is no such file, the environment itself has to do.
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    file: memory::File,
}

impl Handed {
    /// The secret of this process's environment, or else a new one.
    ///
    /// # Errors
    /// [`LaunchError::Secret`], [`LaunchError::SecretFile`]
    pub(crate) fn on_or_new() -> Result<Self, LaunchError> {
        let secret = match JobSecret::from_env() {
            Err(ConfigError::SecretMissing) => JobSecret::generate(),
            handed_on => handed_on,
        };
        Self::of(secret.map_err(|source| LaunchError::Secret { source })?)
    }

    /// The secret of this process's environment, which has to have one.
    ///
    /// # Errors
    /// Those of [`on_or_new`](Self::on_or_new).
    pub(crate) fn on() -> Result<Self, LaunchError> {
        let secret = JobSecret::from_env();
        Self::of(secret.map_err(|source| LaunchError::Secret { source })?)
    }

    pub(crate) fn of(secret: JobSecret) -> Result<Self, LaunchError> {
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        let file =
            memory::File::holding(&secret).map_err(|source| LaunchError::SecretFile { source })?;
        Ok(Self {
            secret,
            #[cfg(all(target_os = "linux", not(meshwork_portable)))]
            file,
        })
    }

    pub(crate) fn secret(&self) -> &JobSecret {
        &self.secret
    }

    /// Says in a worker's environment where the secret is.
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    pub(crate) fn tell(&self, command: &mut Command) {
        command
            .env_remove(JobSecret::ENV)
            .env(JobSecret::FILE_ENV, self.file.path());
    }

    /// Says in a worker's environment what the secret is.
    #[cfg(any(not(target_os = "linux"), meshwork_portable))]
    pub(crate) fn tell(&self, command: &mut Command) {
        command.env(JobSecret::ENV, &*self.secret.to_hex());
    }
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod memory {
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;
    use std::process;

    use meshwork_collectives::JobSecret;
    use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};

    /// A file in no folder, which nobody inherits: processes of the same user open it by its name
    /// among this process's descriptors, a worker that is started again as well as the first.
    #[derive(Debug)]
    pub(crate) struct File(std::fs::File);

    const SEALS: SealFlags = SealFlags::WRITE
        .union(SealFlags::GROW)
        .union(SealFlags::SHRINK)
        .union(SealFlags::SEAL);

    impl File {
        pub(crate) fn holding(secret: &JobSecret) -> io::Result<Self> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let mut file = std::fs::File::from(memfd_create("meshwork job secret", flags)?);
            fchmod(&file, Mode::RUSR)?;
            file.write_all(secret.to_hex().as_bytes())?;
            fcntl_add_seals(&file, SEALS)?;
            Ok(Self(file))
        }

        pub(crate) fn path(&self) -> String {
            format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
        }
    }
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_worker_is_told_a_name_and_no_digits() {
        let digits = "0123456789abcdef".repeat(4);
        let handed = Handed::of(JobSecret::from_hex(&digits).unwrap()).unwrap();
        let mut command = Command::new("true");
        command.env(JobSecret::ENV, &digits);
        handed.tell(&mut command);
        let told: Vec<_> = command.get_envs().collect();
        let file = handed.file.path();
        let expected = [
            (JobSecret::ENV.as_ref(), None),
            (JobSecret::FILE_ENV.as_ref(), Some(file.as_ref())),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_of_memory_is_read_again_and_again_and_written_by_nobody() {
        let secret = JobSecret::generate().unwrap();
        let file = memory::File::holding(&secret).unwrap();
        for _ in 0..2 {
            assert_eq!(fs::read_to_string(file.path()).unwrap(), *secret.to_hex());
        }
        let mode = fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        assert!(fs::write(file.path(), "another").is_err());
        let path = file.path();
        drop(file);
        assert!(fs::read(path).is_err());
    }
}
