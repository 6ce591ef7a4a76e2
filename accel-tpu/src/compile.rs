//! Compile options of PJRT programs (replicas, SPMD partitions, device assignment), encoded as
//! XLA's `CompileOptionsProto`, of which only the fields used here are declared. The programs
//! themselves are written in `stablehlo`.

use prost::Message;

use crate::DeviceInfo;

/// Compile options: the number of replicas and partitions, and the devices.
///
/// ```
/// use meshwork_accel_tpu::CompileOptions;
///
/// let eight_copies = CompileOptions::replicas(8);
/// assert_eq!((eight_copies.replica_count(), eight_copies.partition_count()), (8, 1));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompileOptions {
    replicas: u32,
    partitions: u32,
    devices: Devices,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Devices {
    /// The first ones, or all of a topology.
    Default,
    /// These, by the plugin's numbers.
    Named(Vec<i32>),
    /// Whichever one a run names.
    Any,
}

impl CompileOptions {
    /// One replica, for whichever device a run names.
    #[must_use]
    pub const fn any_device() -> Self {
        Self {
            replicas: 1,
            partitions: 1,
            devices: Devices::Any,
        }
    }

    /// `count` replicas, each on a device of its own, with arguments of its own.
    #[must_use]
    pub const fn replicas(count: u32) -> Self {
        Self {
            replicas: count,
            partitions: 1,
            devices: Devices::Default,
        }
    }

    /// One replica that XLA partitions (SPMD) over `count` devices, as the program's shardings say.
    #[must_use]
    pub const fn partitions(count: u32) -> Self {
        Self {
            replicas: 1,
            partitions: count,
            devices: Devices::Default,
        }
    }

    /// On these devices, in the order of replicas, or of partitions.
    ///
    /// # Shapes
    /// As many as there are replicas or partitions, or compiling fails.
    #[must_use]
    pub fn on<'a>(mut self, devices: impl IntoIterator<Item = &'a DeviceInfo>) -> Self {
        self.devices = Devices::Named(devices.into_iter().map(DeviceInfo::id).collect());
        self
    }

    /// The number of replicas.
    #[must_use]
    pub const fn replica_count(&self) -> u32 {
        self.replicas
    }

    /// The number of devices over which each replica is partitioned.
    #[must_use]
    pub const fn partition_count(&self) -> u32 {
        self.partitions
    }

    /// As XLA's `CompileOptionsProto`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let assignment = match &self.devices {
            Devices::Named(ids) => Some(self.assignment(ids)),
            Devices::Default | Devices::Any => None,
        };
        let build = BuildOptionsProto {
            // 0 would be the first device.
            device_ordinal: -1,
            num_replicas: i64::from(self.replicas),
            num_partitions: i64::from(self.partitions),
            use_spmd_partitioning: self.partitions > 1,
            device_assignment: assignment,
            use_shardy_partitioner: self.partitions > 1,
        };
        let options = CompileOptionsProto {
            executable_build_options: Some(build),
            compile_portable_executable: self.devices == Devices::Any,
        };
        options.encode_to_vec()
    }

    /// The devices of each partition, replica by replica.
    fn assignment(&self, ids: &[i32]) -> DeviceAssignmentProto {
        let partitions = self.partitions.max(1) as usize;
        let of_partition = |partition: usize| ComputationDevice {
            replica_device_ids: ids
                .iter()
                .skip(partition)
                .step_by(partitions)
                .map(|&id| id.into())
                .collect(),
        };
        DeviceAssignmentProto {
            replica_count: self.replicas.cast_signed(),
            computation_count: self.partitions.cast_signed(),
            computation_devices: (0..partitions).map(of_partition).collect(),
        }
    }
}

// The fields of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto that are used here.

#[derive(Clone, PartialEq, Message)]
struct CompileOptionsProto {
    #[prost(message, optional, tag = "3")]
    executable_build_options: Option<BuildOptionsProto>,
    #[prost(bool, tag = "4")]
    compile_portable_executable: bool,
}

#[derive(Clone, PartialEq, Message)]
struct BuildOptionsProto {
    #[prost(int64, tag = "1")]
    device_ordinal: i64,
    #[prost(int64, tag = "4")]
    num_replicas: i64,
    #[prost(int64, tag = "5")]
    num_partitions: i64,
    #[prost(bool, tag = "6")]
    use_spmd_partitioning: bool,
    #[prost(message, optional, tag = "9")]
    device_assignment: Option<DeviceAssignmentProto>,
    #[prost(bool, tag = "19")]
    use_shardy_partitioner: bool,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceAssignmentProto {
    #[prost(int32, tag = "1")]
    replica_count: i32,
    #[prost(int32, tag = "2")]
    computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    computation_devices: Vec<ComputationDevice>,
}

#[derive(Clone, PartialEq, Message)]
struct ComputationDevice {
    #[prost(int64, repeated, tag = "1")]
    replica_device_ids: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_bytes_that_xla_reads() {
        // device_ordinal -1, num_replicas 2, num_partitions 1.
        let minus_one = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        let mut expected = vec![0x1a, 15];
        expected.extend(minus_one);
        expected.extend([0x20, 2, 0x28, 1]);
        assert_eq!(CompileOptions::replicas(2).encode(), expected);
        let portable = CompileOptions::any_device().encode();
        assert_eq!(portable[portable.len() - 2..], [0x20, 1]);
    }

    #[test]
    fn devices_are_dealt_replica_by_replica_and_partition_by_partition() {
        let mut options = CompileOptions::replicas(2);
        options.partitions = 3;
        let dealt = options.assignment(&[0, 1, 2, 3, 4, 5]);
        let dealt = dealt
            .computation_devices
            .into_iter()
            .map(|device| device.replica_device_ids);
        assert_eq!(dealt.collect::<Vec<_>>(), [[0, 3], [1, 4], [2, 5]]);
    }
}
