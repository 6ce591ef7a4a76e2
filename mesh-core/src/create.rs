//! `Client` and `CreateMesh`, TensorFlow's `create_mesh` and `create_distributed_mesh`: a mesh of
//! one process's devices or of those of all processes. Orders for TPU slices are in `tpu`.

use crate::{DeviceIds, DeviceSpec, Devices, Error, Mesh, MeshBuilder};

/// One process of those that make meshes together, and how many devices of each type it has.
///
/// ```
/// use meshwork_core::{Client, Error};
///
/// // The second of four processes of the job `worker`, with eight GPUs.
/// let client = Client::new("worker", 1, 4)?.with_devices("GPU", 8)?;
/// assert_eq!(client.host().to_string(), "/job:worker/replica:0/task:1");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Client {
    host: DeviceSpec,
    index: u32,
    count: u32,
    devices: Vec<(DeviceSpec, u32)>,
}

impl Client {
    /// The process of this number, from 0, among `count` of a job.
    ///
    /// # Errors
    /// [`Error::ClientOutside`], and [`Error::DeviceWord`] for the job.
    pub fn new(job: &str, index: u32, count: u32) -> Result<Self, Error> {
        if index >= count {
            return Err(Error::ClientOutside { index, count });
        }
        let host = DeviceSpec::default().with_job(job)?.with_replica(0);
        Ok(Self {
            host: host.with_task(index),
            index,
            count,
            devices: Vec::new(),
        })
    }

    /// The same process with this many devices of a type, whose case does not matter.
    ///
    /// # Errors
    /// [`Error::DeviceWord`].
    pub fn with_devices(mut self, device_type: &str, count: u32) -> Result<Self, Error> {
        let first = self.first_device(device_type)?;
        self.devices.retain(|(known, _)| *known != first);
        self.devices.push((first, count));
        Ok(self)
    }

    /// The job, replica and task of this process.
    #[must_use]
    pub fn host(&self) -> &DeviceSpec {
        &self.host
    }

    /// How many processes there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// This process's devices of a type, whose case does not matter.
    ///
    /// # Errors
    /// [`Error::NoSuchDevices`] when there is none, [`Error::DeviceWord`].
    pub fn devices(&self, device_type: &str) -> Result<Devices, Error> {
        let first = self.first_device(device_type)?;
        let counted = self.devices.iter().find(|(known, _)| *known == first);
        match counted {
            Some(&(_, count)) if count > 0 => Devices::counted(&first.to_string(), count as usize),
            _ => Err(Error::NoSuchDevices {
                device_type: device_type.to_owned(),
            }),
        }
    }

    fn first_device(&self, device_type: &str) -> Result<DeviceSpec, Error> {
        let device = self.host.clone();
        device.with_device(device_type.to_ascii_uppercase(), Some(0))
    }
}

/// A mesh to be made of a process's devices, or of those of all processes.
///
/// Without further words it is a mesh of all CPUs of this process along the dimension `x`.
///
/// ```
/// use meshwork_core::{Client, CreateMesh, Error};
///
/// let client = Client::new("localhost", 0, 1)?.with_devices("GPU", 8)?;
/// let mesh = CreateMesh::new()
///     .dims([("batch", 2), ("model", 4)])
///     .device_type("GPU")
///     .create(&client)?;
/// assert_eq!(mesh.num_local_devices(), 8);
/// let last = mesh.local_devices().get(7).map(|device| device.to_string());
/// assert_eq!(last.as_deref(), Some("/job:localhost/replica:0/task:0/device:GPU:7"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CreateMesh {
    dims: Dims,
    name: String,
    devices: Option<Vec<DeviceSpec>>,
    device_type: Option<String>,
    xla_spmd: bool,
    order: Order,
}

/// Which devices of all processes come first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    /// Those of the first process; of TPUs, what their slice says.
    Topology,
    /// Those of the first process, whatever they are.
    Clients,
}

#[derive(Clone, Debug)]
enum Dims {
    /// All devices along one dimension.
    Along(String),
    Given(Vec<(String, usize)>),
}

impl CreateMesh {
    /// A mesh of all CPUs along `x`.
    pub fn new() -> Self {
        Self {
            dims: Dims::Along("x".to_owned()),
            name: String::new(),
            devices: None,
            device_type: None,
            xla_spmd: false,
            order: Order::Topology,
        }
    }

    /// The dimensions, major to minor; their sizes multiply to the number of devices.
    pub fn dims(mut self, dims: impl IntoIterator<Item = (impl AsRef<str>, usize)>) -> Self {
        let dims = dims.into_iter();
        let owned = dims.map(|(name, size)| (name.as_ref().to_owned(), size));
        self.dims = Dims::Given(owned.collect());
        self
    }

    /// One dimension that holds all devices: TensorFlow's size -1.
    pub fn along(mut self, dim: impl Into<String>) -> Self {
        self.dims = Dims::Along(dim.into());
        self
    }

    /// The name; none by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The local devices in the order of their ranks, in place of all of a type. What they leave
    /// open, such as their job, is filled in; nothing is said about whether they exist.
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceSpec>) -> Self {
        self.devices = Some(devices.into_iter().collect());
        self
    }

    /// The type of the devices in any case; by default that of the first device, or CPU.
    pub fn device_type(mut self, device_type: impl Into<String>) -> Self {
        self.device_type = Some(device_type.into());
        self
    }

    /// Marks the mesh as one whose programs the XLA compiler partitions; TPU only.
    #[doc(alias = "use_xla_spmd")]
    pub fn xla_spmd(mut self) -> Self {
        self.xla_spmd = true;
        self
    }

    /// With the devices of the first process first also where they are TPUs, for those who know
    /// that this is the order to have, or that it does not matter.
    ///
    /// ```
    /// use meshwork_core::{Client, CreateMesh};
    ///
    /// let client = Client::new("worker", 1, 2)?.with_devices("TPU", 4)?;
    /// let tpus = CreateMesh::new().device_type("TPU").along("x");
    /// assert!(tpus.clone().create_distributed(&client).is_err());
    /// let mesh = tpus.in_client_order().create_distributed(&client)?;
    /// assert_eq!(mesh.size(), 8);
    /// # Ok::<(), meshwork_core::Error>(())
    /// ```
    pub fn in_client_order(mut self) -> Self {
        self.order = Order::Clients;
        self
    }

    /// The mesh of this process's devices alone. Given devices that name no task are those of
    /// task 0.
    ///
    /// # Errors
    /// [`Error::NoDevices`] for an empty list, [`Error::NoSuchDevices`] where the process has none
    /// of the type, [`Error::ConflictingDeviceType`], [`Error::DeviceCount`], and those of
    /// [`MeshBuilder::build`].
    #[doc(alias = "create_mesh")]
    pub fn create(self, client: &Client) -> Result<Mesh, Error> {
        let devices = self.local_devices(client, &client.host.clone().with_task(0))?;
        let ids = DeviceIds::consecutive(0, devices.len())?;
        self.build(devices.len(), ids, devices)
    }

    /// The mesh of the devices of all processes, which have as many each, seen from this one.
    ///
    /// The first process has the first ids, whatever the dimensions are: with the last dimension
    /// smaller than the number of its devices, a process holds several rows.
    ///
    /// # Errors
    /// As for [`create`](Self::create), with [`Error::DeviceCount`] about the devices of all
    /// processes, and [`Error::TpuWithoutTopology`] for TPU, whose order the topology decides
    /// ([`create_tpu_mesh`](crate::tpu::create_tpu_mesh) makes those), but
    /// [in the order of clients](Self::in_client_order).
    #[doc(alias = "create_distributed_mesh")]
    pub fn create_distributed(self, client: &Client) -> Result<Mesh, Error> {
        let is_tpu = |device_type: &str| {
            self.order == Order::Topology && device_type.eq_ignore_ascii_case("TPU")
        };
        if self.device_type.as_deref().is_some_and(is_tpu) {
            return Err(Error::TpuWithoutTopology);
        }
        let devices = self.local_devices(client, &client.host)?;
        if devices.device_type().is_some_and(is_tpu) {
            return Err(Error::TpuWithoutTopology);
        }
        let len = devices.len();
        let total = len.checked_mul(client.count as usize);
        let total = total.ok_or(Error::TooManyDevices)?;
        // Below `total`, as the index is below the count.
        let first =
            i64::try_from(len * client.index as usize).map_err(|_| Error::TooManyDevices)?;
        let ids = DeviceIds::consecutive(first, len)?;
        self.build(total, ids, devices)
    }

    fn local_devices(&self, client: &Client, host: &DeviceSpec) -> Result<Devices, Error> {
        let Some(devices) = &self.devices else {
            return client.devices(self.device_type.as_deref().unwrap_or("CPU"));
        };
        let first = devices.first().ok_or(Error::NoDevices)?;
        let found = first.device_type().unwrap_or_default();
        match &self.device_type {
            Some(asked) if !asked.eq_ignore_ascii_case(found) => {
                Err(Error::ConflictingDeviceType {
                    asked: asked.clone(),
                    device: first.clone(),
                })
            }
            _ => Ok(devices.iter().map(|device| host.merge(device)).collect()),
        }
    }

    fn build(self, total: usize, ids: DeviceIds, devices: Devices) -> Result<Mesh, Error> {
        let dims = match self.dims {
            Dims::Along(dim) => vec![(dim, total)],
            Dims::Given(dims) => dims,
        };
        let expected = Mesh::new(dims.iter().map(|(name, size)| (name, *size)))?.size();
        if total != expected {
            let found = total;
            return Err(Error::DeviceCount { found, expected });
        }
        let builder = MeshBuilder::new(dims).name(self.name).local(ids, devices);
        match self.xla_spmd {
            true => builder.xla_spmd().build(),
            false => builder.build(),
        }
    }
}

impl Default for CreateMesh {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new("w", 1, 3)
            .unwrap()
            .with_devices("gpu", 4)
            .unwrap()
    }

    fn devices(texts: &[&str]) -> Vec<DeviceSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn all_devices_of_a_type_are_taken_in_order() {
        let mesh = CreateMesh::new()
            .device_type("Gpu")
            .create(&client())
            .unwrap();
        let gpu = |index| format!("/job:w/replica:0/task:1/device:GPU:{index}");
        let gpus: Vec<String> = (0..4).map(gpu).collect();
        assert_eq!(
            mesh.to_string(),
            format!("|x=4|0,1,2,3|0,1,2,3|{}", gpus.join(","))
        );
    }

    #[test]
    fn given_devices_keep_their_order_and_what_they_name() {
        let given = devices(&["GPU:5", "/job:v/task:2/GPU:2"]);
        let mesh = CreateMesh::new().along("y").devices(given).name("m");
        assert_eq!(
            mesh.create(&client()).unwrap().to_string(),
            "m|y=2|0,1|0,1|/job:w/replica:0/task:0/device:GPU:5,/job:v/replica:0/task:2/device:GPU:2"
        );
    }

    #[test]
    fn a_process_holds_the_ids_after_those_of_the_processes_before_it() {
        let mesh = CreateMesh::new()
            .dims([("x", 6), ("y", 2)])
            .device_type("GPU");
        let mesh = mesh.create_distributed(&client()).unwrap();
        assert!(mesh.local_device_ids().iter().eq(4..8));
        assert_eq!(mesh.local_devices(), &client().devices("GPU").unwrap());
        let cpu = CreateMesh::new().devices(devices(&["CPU:3"])).along("x");
        assert_eq!(
            cpu.create_distributed(&client()).unwrap().to_string(),
            "|x=3|0,1,2|1|/job:w/replica:0/task:1/device:CPU:3"
        );
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |mesh: CreateMesh| mesh.create(&client()).unwrap_err();
        let gpu = || CreateMesh::new().device_type("GPU");
        let (found, expected) = (4, 8);
        assert_eq!(
            refused(gpu().dims([("x", 8)])),
            Error::DeviceCount { found, expected }
        );
        assert_eq!(refused(gpu().devices([])), Error::NoDevices);
        let device_type = "CPU".to_owned();
        assert_eq!(
            refused(CreateMesh::new()),
            Error::NoSuchDevices { device_type }
        );
        let device = devices(&["CPU:0"]).remove(0);
        let asked = "GPU".to_owned();
        assert_eq!(
            refused(gpu().devices([device.clone()])),
            Error::ConflictingDeviceType { asked, device }
        );
        assert!(matches!(
            refused(gpu().xla_spmd()),
            Error::SpmdNeedsTpu { .. }
        ));
        let tpu = CreateMesh::new().devices(devices(&["TPU:0"]));
        assert_eq!(
            tpu.create_distributed(&client()),
            Err(Error::TpuWithoutTopology)
        );
        let (index, count) = (3, 3);
        assert_eq!(
            Client::new("w", 3, 3),
            Err(Error::ClientOutside { index, count })
        );
    }
}
