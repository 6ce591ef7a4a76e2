//! `Context`: one client's devices, its process group, and caches of device placements, transfer
//! plans and free buffers. Making meshes, barriers and leaving are here; agreement among clients is
//! in `agreement`, backends that compute for a mesh in `backends`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwork_collectives::{Group, Rank};
use meshwork_core::{Client, CreateMesh, DeviceSpec, Mesh};
use meshwork_layout::{Layout, Relayout, Shape};

use crate::backend::Backend;
use crate::device_placement::DevicePlacement;
use crate::error::Subject;
use crate::transfer_plan::TransferPlan;
use crate::{DeviceType, Error};

mod agreement;
mod backends;
mod buffer_pool;
mod find;
mod process_group;

use buffer_pool::BufferPool;
pub(crate) use process_group::Connected;
use process_group::ProcessGroup;

/// A client: one process among those that compute together, with its devices and its process group.
///
/// Everything that has to do with a mesh goes through one; clones are the same. Most programs use
/// the one of the process, which
/// [`initialize_accelerator_system`](crate::initialize_accelerator_system) makes.
///
/// Clients exchange data in the order in which each of them asks for it. So whatever reaches other
/// clients has to happen in one order, the same on all of them: give it to one thread. Threads that
/// overtake each other on one client end all of them with an error or, where they do the same, get
/// each other's values. A process that is alone may compute by several threads.
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
    group: Mutex<ProcessGroup>,
    device_placement: Mutex<HashMap<Mesh, Arc<DevicePlacement>>>,
    /// Whether clients compare the names of barriers.
    checks_barriers: AtomicBool,
    barriers: AtomicU64,
    transfer_plans: Mutex<HashMap<Question, Arc<TransferPlan>>>,
    buffer_pool: Mutex<BufferPool>,
    /// The backend that stores and computes tensors on the devices of a type.
    backends: Mutex<BTreeMap<DeviceType, Backend>>,
    /// The number of announcements of the next operation among clients.
    announcements: AtomicU64,
    sent: AtomicU64,
}

/// The cache key of a transfer plan: the layouts before and after, the shape, and the bytes of an
/// element.
type Question = (Layout, Layout, Shape, usize);

/// The capacity of the cache of transfer plans.
const TRANSFER_PLANS: usize = 4096;

impl Context {
    /// A process that is alone.
    #[must_use]
    pub fn alone(client: Client) -> Self {
        Self::new(client, 0, ProcessGroup::None)
    }

    /// One of several clients: the rank in the group is the number of the client. Threads of one
    /// process may be clients too, by [`Group::local`].
    ///
    /// # Errors
    /// [`Error::ClientsDisagree`] where the client's number or count is not the group's, and those
    /// of an all-gather.
    #[track_caller]
    pub fn from_group(client: Client, group: Group) -> Result<Self, Error> {
        let index = group.rank().number();
        let expected = format!("client {index} of {}", group.world());
        let said = format!(
            "client {} of {}",
            client.host().task().unwrap_or_default(),
            client.count()
        );
        let context = Self::new(client, index, ProcessGroup::of(group));
        let told = match said == expected {
            true => "its own number".to_owned(),
            false => format!("{said} for {expected}"),
        };
        context.agree(Subject::Job, &told)?;
        Ok(context)
    }

    fn new(client: Client, index: u32, process_group: ProcessGroup) -> Self {
        Self(Arc::new(Inner {
            client,
            index,
            group: Mutex::new(process_group),
            device_placement: Mutex::default(),
            checks_barriers: AtomicBool::new(false),
            barriers: AtomicU64::new(0),
            transfer_plans: Mutex::default(),
            buffer_pool: Mutex::default(),
            backends: Mutex::default(),
            announcements: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }))
    }

    /// The same client with other backends, and without its group.
    fn recorded(
        &self,
        backends: BTreeMap<DeviceType, Backend>,
        placements: HashMap<Mesh, Arc<DevicePlacement>>,
    ) -> Self {
        let recorded = Self::new(self.client().clone(), self.index(), ProcessGroup::Left);
        let lock = recorded.0.backends.lock();
        *lock.unwrap_or_else(PoisonError::into_inner) = backends;
        let lock = recorded.0.device_placement.lock();
        *lock.unwrap_or_else(PoisonError::into_inner) = placements;
        recorded
    }

    /// The client whose devices meshes are made of.
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

    /// The mesh of the devices of all clients. All of them call it, and none returns before it is
    /// known that all made the same.
    ///
    /// TPUs have an order of their own, which
    /// [`create_tpu_mesh`](meshwork_core::tpu::create_tpu_mesh) knows. Where a backend computes for
    /// them ([`compute_on`](Self::compute_on)) a mesh is made here all the same, with those of the
    /// first client first.
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
            .map_or_else(ToString::to_string, crate::device_placement::common_text);
        self.agree(Subject::Mesh, &told)?;
        let mesh = made?;
        self.device_placement(&mesh)?;
        Ok(mesh)
    }

    /// Ends the process group of the clients; all of them call it. Tensors keep what they have, but
    /// can be moved inside each process only.
    ///
    /// # Errors
    /// Those of [`Group::leave`].
    #[track_caller]
    pub fn leave(&self) -> Result<(), Error> {
        *self.buffer_pool() = BufferPool::default();
        let process_group = std::mem::replace(&mut *self.process_group(), ProcessGroup::Left);
        match process_group {
            ProcessGroup::Connected(connected) => Ok(connected.group.leave()?),
            ProcessGroup::None | ProcessGroup::Left => Ok(()),
        }
    }

    /// Returns when every client has called it.
    ///
    /// Barriers have a name and a number of their own, which all clients compare where they were
    /// initialised with checks.
    ///
    /// # Errors
    /// [`Error::ClientsDisagree`] where clients wait at barriers of different names, and those of
    /// an all-gather.
    #[track_caller]
    pub fn barrier(&self, name: &str) -> Result<(), Error> {
        let number = self.0.barriers.fetch_add(1, Ordering::Relaxed);
        match self.0.checks_barriers.load(Ordering::Relaxed) {
            true => self.agree(Subject::Barrier, &format!("{name}:{number}")),
            false if self.is_alone() => Ok(()),
            false => Ok(self.process_group().connected()?.group.barrier()?),
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
    pub(crate) fn device_placement(&self, mesh: &Mesh) -> Result<Arc<DevicePlacement>, Error> {
        let known = self
            .0
            .device_placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(mesh)
            .cloned();
        if let Some(device_placement) = known {
            return Ok(device_placement);
        }
        self.check_devices(mesh)?;
        let device_placement = Arc::new(DevicePlacement::find(self, mesh)?);
        let mut all = self
            .0
            .device_placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(mesh.clone(), device_placement.clone());
        Ok(device_placement)
    }

    /// How this client carries out a relayout; found once.
    #[track_caller]
    pub(crate) fn transfer_plan(
        &self,
        [from, to]: [&Layout; 2],
        shape: &[usize],
        element_size: usize,
    ) -> Result<Arc<TransferPlan>, Error> {
        let question = (from.clone(), to.clone(), Shape::from(shape), element_size);
        let known = self.transfer_plans().get(&question).cloned();
        if let Some(transfer_plan) = known {
            return Ok(transfer_plan);
        }
        let plan = Relayout::new(from, to, shape, element_size)?.plan()?;
        let device_placement = [
            self.device_placement(from.mesh())?,
            self.device_placement(to.mesh())?,
        ];
        let (own, clients) = (self.index() as usize, self.client().count() as usize);
        let transfer_plan = Arc::new(TransferPlan::of(
            &plan,
            [&device_placement[0], &device_placement[1]],
            own,
            clients,
        )?);
        let mut transfer_plans = self.transfer_plans();
        if transfer_plans.len() >= TRANSFER_PLANS {
            transfer_plans.clear();
        }
        transfer_plans.insert(question, transfer_plan.clone());
        Ok(transfer_plan)
    }

    fn transfer_plans(&self) -> MutexGuard<'_, HashMap<Question, Arc<TransferPlan>>> {
        self.0
            .transfer_plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that belongs to no block.
    pub(crate) fn buffer_pool(&self) -> MutexGuard<'_, BufferPool> {
        self.0
            .buffer_pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.0.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many bytes of tensors this client has sent to others so far.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Ends the process group with a reason that all clients report.
    pub(crate) fn abort(&self, reason: &Error) {
        if let ProcessGroup::Connected(connected) = &mut *self.process_group() {
            connected.group.abort(reason.to_string());
        }
    }

    /// The other clients, for as long as this client does something with them.
    pub(crate) fn process_group(&self) -> MutexGuard<'_, ProcessGroup> {
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
