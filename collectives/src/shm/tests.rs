#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod closing;
mod interleavings;
pub(super) mod layout;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod lies;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod truth;
