#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod closing;
mod interleavings;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod lies;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod truth;
