use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwork_collectives::{Group, Rank};
use meshwork_core::{Client, CreateMesh, DeviceSpec, Mesh};
use meshwork_layout::{Layout, Relayout, Shape};

use crate::backend::Backend;
use crate::error::Subject;
use crate::route::Route;
use crate::{DeviceType, Error};

mod agree;
mod backends;
mod company;
mod homes;
mod spares;

use company::Company;
pub(crate) use company::Together;
pub(crate) use homes::Homes;
use spares::Spares;

/// One process among those that compute together: its devices, and the way to the others.
///
/// Everything that has to do with a mesh goes through one; clones are the same. Most programs use the
/// one of the process, which [`initialize_accelerator_system`](crate::initialize_accelerator_system)
/// makes.
///
/// ```
/// use meshwork_core::{Client, CreateMesh};
/// use meshwork_dtensor::{Context, Error};
///
/// let client = Client::new("localhost", 0, 1)?.with_devices("CPU", 8)?;
/// let context = Context::alone(client);
/// let mesh = context.create_mesh(CreateMesh::new().dims([("x", 2), ("y", 4)]))?;
/// assert_eq!(mesh.size(), 8);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    client: Client,
    /// The number of this client, from 0.
    index: u32,
    group: Mutex<Company>,
    homes: Mutex<HashMap<Mesh, Arc<Homes>>>,
    /// Whether clients compare the names of barriers.
    checks_barriers: AtomicBool,
    barriers: AtomicU64,
    routes: Mutex<HashMap<Question, Arc<Route>>>,
    spares: Mutex<Spares>,
    /// Where tensors on the devices of a type lie.
    backends: Mutex<BTreeMap<DeviceType, Backend>>,
    /// How often clients have told each other what they do next.
    announcements: AtomicU64,
    sent: AtomicU64,
}

/// What a route is found for: the layouts before and after, the shape, and the bytes of an element.
type Question = (Layout, Layout, Shape, usize);

/// How many routes are kept; then they are found anew.
const ROUTES: usize = 4096;

impl Context {
    /// A process that is alone.
    #[must_use]
    pub fn alone(client: Client) -> Self {
        Self::new(client, 0, Company::None)
    }

    /// One of several clients: the rank in the group is the number of the client. Threads of one
    /// process may be clients too, by [`Group::local`].
    ///
    /// # Errors
    /// [`Error::ClientsDisagree`] where the client's number or count is not the group's, and those of
    /// an all-gather.
    #[track_caller]
    pub fn over(client: Client, group: Group) -> Result<Self, Error> {
        let index = group.rank().number();
        let expected = format!("client {index} of {}", group.world());
        let said = format!(
            "client {} of {}",
            client.host().task().unwrap_or_default(),
            client.count()
        );
        let context = Self::new(client, index, Company::of(group));
        let told = match said == expected {
            true => "its own number".to_owned(),
            false => format!("{said} for {expected}"),
        };
        context.agree(Subject::Job, &told)?;
        Ok(context)
    }

    fn new(client: Client, index: u32, company: Company) -> Self {
        Self(Arc::new(Inner {
            client,
            index,
            group: Mutex::new(company),
            homes: Mutex::default(),
            checks_barriers: AtomicBool::new(false),
            barriers: AtomicU64::new(0),
            routes: Mutex::default(),
            spares: Mutex::default(),
            backends: Mutex::default(),
            announcements: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }))
    }

    /// What meshes are made of here.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The number of this client, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// The mesh of this client's devices alone.
    ///
    /// # Errors
    /// Those of [`CreateMesh::create`].
    pub fn create_mesh(&self, mesh: CreateMesh) -> Result<Mesh, Error> {
        Ok(mesh.create(self.client())?)
    }

    /// The mesh of the devices of all clients. All of them call it, and none goes on before it is
    /// known that all made the same.
    ///
    /// TPUs have an order of their own, which [`create_tpu_mesh`](meshwork_core::tpu::create_tpu_mesh) knows.
    /// Where a backend computes for them ([`compute_on`](Self::compute_on)) a mesh is made here all the same,
    /// with those of the first client first.
    ///
    /// # Errors
    /// Those of [`CreateMesh::create_distributed`], [`Error::ClientsDisagree`], and those of an
    /// all-gather.
    #[track_caller]
    pub fn create_distributed_mesh(&self, mesh: CreateMesh) -> Result<Mesh, Error> {
        let mesh = match self.computes_on(DeviceType::Tpu) {
            true => mesh.in_client_order(),
            false => mesh,
        };
        let made = mesh.create_distributed(self.client());
        if self.is_alone() {
            return Ok(made?);
        }
        // A client that cannot make its mesh tells the others why, so that nobody waits for it.
        let told = made
            .as_ref()
            .map_or_else(ToString::to_string, homes::common_text);
        self.agree(Subject::Mesh, &told)?;
        let mesh = made?;
        self.homes(&mesh)?;
        Ok(mesh)
    }

    /// Ends the company of the clients; all of them call it. Tensors keep what they have, but can
    /// be moved inside each process only.
    ///
    /// # Errors
    /// Those of [`Group::leave`].
    #[track_caller]
    pub fn leave(&self) -> Result<(), Error> {
        *self.spares() = Spares::default();
        let company = std::mem::replace(&mut *self.company(), Company::Parted);
        match company {
            Company::Together(together) => Ok(together.group.leave()?),
            Company::None | Company::Parted => Ok(()),
        }
    }

    /// Returns when every client has called it.
    ///
    /// Barriers have a name and a number of their own, which all clients compare where they were
    /// initialised with checks.
    ///
    /// # Errors
    /// [`Error::ClientsDisagree`] where clients stand at barriers of different names, and those of an
    /// all-gather.
    #[track_caller]
    pub fn barrier(&self, name: &str) -> Result<(), Error> {
        let number = self.0.barriers.fetch_add(1, Ordering::Relaxed);
        match self.0.checks_barriers.load(Ordering::Relaxed) {
            true => self.agree(Subject::Barrier, &format!("{name}:{number}")),
            false if self.is_alone() => Ok(()),
            false => Ok(self.company().together()?.group.barrier()?),
        }
    }

    /// From now on barriers compare their names.
    pub(crate) fn check_barriers(&self) {
        self.0.checks_barriers.store(true, Ordering::Relaxed);
    }

    /// Whether this is a clone of the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there is one client only.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.client().count() == 1
    }

    /// Where the devices of a mesh are. The first time that a mesh with devices of several clients
    /// is used, all of them have to use it.
    #[track_caller]
    pub(crate) fn homes(&self, mesh: &Mesh) -> Result<Arc<Homes>, Error> {
        let known = self
            .0
            .homes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(mesh)
            .cloned();
        if let Some(homes) = known {
            return Ok(homes);
        }
        self.check_devices(mesh)?;
        let homes = Arc::new(Homes::find(self, mesh)?);
        let mut all = self.0.homes.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(mesh.clone(), homes.clone());
        Ok(homes)
    }

    /// How this client carries out a relayout; found once.
    #[track_caller]
    pub(crate) fn route(
        &self,
        [from, to]: [&Layout; 2],
        shape: &[usize],
        element_size: usize,
    ) -> Result<Arc<Route>, Error> {
        let question = (from.clone(), to.clone(), Shape::from(shape), element_size);
        let known = self.routes().get(&question).cloned();
        if let Some(route) = known {
            return Ok(route);
        }
        let plan = Relayout::new(from, to, shape, element_size)?.plan()?;
        let homes = [self.homes(from.mesh())?, self.homes(to.mesh())?];
        let clients = (self.index() as usize, self.client().count() as usize);
        let route = Arc::new(Route::of(&plan, [&homes[0], &homes[1]], clients)?);
        let mut routes = self.routes();
        if routes.len() >= ROUTES {
            routes.clear();
        }
        routes.insert(question, route.clone());
        Ok(route)
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<Question, Arc<Route>>> {
        self.0.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that belongs to no block.
    pub(crate) fn spares(&self) -> MutexGuard<'_, Spares> {
        self.0.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.0.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many bytes of tensors this client has sent to others so far.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Ends the company with a reason that all clients report.
    pub(crate) fn abort(&self, reason: &Error) {
        if let Company::Together(together) = &mut *self.company() {
            together.group.abort(reason.to_string());
        }
    }

    /// The other clients, for as long as this client does something with them.
    pub(crate) fn company(&self) -> MutexGuard<'_, Company> {
        // A group that panicked has ended; it says so itself.
        self.0.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that a mesh names as ours have to be there. A mesh without names has any.
    fn check_devices(&self, mesh: &Mesh) -> Result<(), Error> {
        let host = self.client().host();
        let here = |device: &DeviceSpec| {
            device.job() == host.job() && device.task().unwrap_or_default() == self.index()
        };
        for device in mesh.local_devices().iter().filter(here) {
            let kind = device.device_type().unwrap_or_default();
            let available = self
                .client()
                .devices(kind)
                .map_or(0, |devices| devices.len());
            if device
                .device_index()
                .is_none_or(|index| index as usize >= available)
            {
                return Err(Error::UnknownDevice {
                    device: device.to_string(),
                    available,
                });
            }
        }
        Ok(())
    }
}

impl Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("client", &self.0.client)
            .field("rank", &Rank::new(self.0.index))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
