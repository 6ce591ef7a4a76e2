//! Compile options of PJRT programs (replicas, SPMD partitions, device assignment), encoded as
//! XLA's `CompileOptionsProto`, of which only the fields used here are declared. The programs
//! themselves are written in `stablehlo`.

use std::collections::BTreeMap;

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
    compiler_options: BTreeMap<String, String>,
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
            compiler_options: BTreeMap::new(),
        }
    }

    /// `count` replicas, each on a device of its own, with arguments of its own.
    #[must_use]
    pub const fn replicas(count: u32) -> Self {
        Self {
            replicas: count,
            partitions: 1,
            devices: Devices::Default,
            compiler_options: BTreeMap::new(),
        }
    }

    /// One replica that XLA partitions (SPMD) over `count` devices, as the program's shardings say.
    #[must_use]
    pub const fn partitions(count: u32) -> Self {
        Self {
            replicas: 1,
            partitions: count,
            devices: Devices::Default,
            compiler_options: BTreeMap::new(),
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

    /// With an option of XLA's compiler, one of those in `DebugOptions` of its `xla/xla.proto`, or
    /// what the plugin knows besides; its value is text, of which truth is `True` or `False`. It
    /// counts more than `XLA_FLAGS`, and of two with one name the later does. Compiling fails where
    /// there is none of that name, or it has no such value.
    ///
    /// ```
    /// use meshwork_accel_tpu::CompileOptions;
    ///
    /// let quickly = CompileOptions::replicas(1);
    /// let quickly = quickly.with_compiler_option("xla_backend_optimization_level", "0");
    /// ```
    #[must_use]
    #[doc(alias("compiler_options", "XLA_FLAGS"))]
    pub fn with_compiler_option(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.compiler_options.insert(name.into(), value.into());
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
        let overrides = self.compiler_options.iter().map(|(name, value)| {
            let string_field = Some(value.clone());
            (name.clone(), OptionOverrideProto { string_field })
        });
        let options = CompileOptionsProto {
            executable_build_options: Some(build),
            compile_portable_executable: self.devices == Devices::Any,
            env_option_overrides: overrides.collect(),
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
    #[prost(btree_map = "string, message", tag = "7")]
    env_option_overrides: BTreeMap<String, OptionOverrideProto>,
}

/// One of several types, of which XLA reads all out of a string.
#[derive(Clone, PartialEq, Message)]
struct OptionOverrideProto {
    #[prost(string, optional, tag = "1")]
    string_field: Option<String>,
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
        let named = CompileOptions::any_device().with_compiler_option("a", "0");
        let of_xla = named.with_compiler_option("a", "12").encode();
        let entry = [0x3a, 9, 0x0a, 1, b'a', 0x12, 4, 0x0a, 2, b'1', b'2'];
        assert_eq!(of_xla[portable.len()..], entry);
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
