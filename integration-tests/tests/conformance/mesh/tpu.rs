//! `{"fn": "enumerate" | "all_reduce_ring" | "orthogonal_rings" | "create_tpu_mesh", …}`.

use meshwork_core::tpu::{
    RingAcross, RingDims, RingPlane, TpuAxis, TpuCore, TpuError, TpuHosts, TpuMesh, TpuRings,
    TpuTopology, all_reduce_ring, create_tpu_mesh, rings_across,
};
use meshwork_core::{DeviceSpec, Mesh};
use serde_json::{Value, json};

use super::answers::{compare, integer, integers, texts};
use crate::harness::Verdict;
use crate::not_askable::FOUR;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let result = match input["fn"].as_str() {
        Some("enumerate") => enumerate(input),
        Some("all_reduce_ring") => counted(input).map(|cores| {
            let order = all_reduce_ring(&cores, plane(&input["rotate"]));
            // The order of the input is that in which `counted` counts.
            let input_order = "enumerate(bounds, axes=core,x,y,z)";
            Some(json!({"input_order": input_order, "permutation": order}))
        }),
        Some("orthogonal_rings") => counted(input).map(|cores| {
            let plane = plane(&input["rotate_ring_across_rings"]);
            let cores = rings_across(&cores, size(&input["ring_size"])?, plane);
            Some(json!({"core_locations": locations(&cores)}))
        }),
        Some("create_tpu_mesh") => create(input, &case["expect"]),
        other => return Verdict::Failed(format!("the function {other:?} is not known")),
    };
    match (result, case.get("expect")) {
        (Ok(Some(answer)), Some(expect)) => compare(expect, |field| answer.get(field).cloned()),
        (Ok(None), _) => Verdict::unsayable(case, FOUR),
        // Errors of TPUs were not sorted.
        (Err(_), None) => Verdict::Passed,
        (result, _) => Verdict::Failed(format!("{result:?} where {case} is recorded")),
    }
}

fn enumerate(input: &Value) -> Result<Option<Value>, TpuError> {
    let (bounds, ring_size) = (four(&input["ring_bounds"]), size(&input["ring_size"]));
    let (Some(axes), Some(bounds), Some(ring_size)) = (axes(&input["axes"])?, bounds, ring_size)
    else {
        return Ok(None);
    };
    let hosts = hosts(&input["can_split_host_across_rings"]);
    let rings = TpuRings::new().axes(axes).bounds(bounds).hosts(hosts);
    let cores = rings.enumerate(&topology(&input["bounds"])?, ring_size)?;
    Ok(Some(json!({"core_locations": locations(&cores)})))
}

fn counted(input: &Value) -> Result<Vec<TpuCore>, TpuError> {
    TpuRings::new().enumerate(&topology(&input["bounds"])?, 1)
}

/// `None` where lists have another length than four, sizes are negative, or there is no topology:
/// the types here do not let that through.
fn create(input: &Value, expect: &Value) -> Result<Option<Value>, TpuError> {
    let args = &input["args"];
    if input["topology"].is_null() {
        return Ok(None);
    }
    let Some(rings) = rings(args)? else {
        return Ok(None);
    };
    let slice = topology(&input["topology"])?;
    let sizes = args["mesh_shape"].as_array().into_iter().flatten();
    let Some(sizes) = sizes.map(size).collect::<Option<Vec<usize>>>() else {
        return Ok(None);
    };
    // The simulated hosts were told which cores they have; where an error is recorded, they are
    // not.
    let Some(local) = expect["device_coordinates_of_client"].as_array() else {
        let cores = rings.order(&slice, &sizes)?;
        return Ok(Some(json!(locations(&cores))));
    };
    let local: Vec<TpuCore> = local.iter().filter_map(four).map(TpuCore::new).collect();
    let job = if input["num_clients"] == 1 {
        "localhost"
    } else {
        "worker"
    };
    let host = format!("/job:{job}/replica:0/task:{}", integer(&input["client_id"]));
    let mesh = Mesh::builder(["a", "b", "c", "d", "e", "f"].into_iter().zip(sizes));
    let made = create_tpu_mesh(mesh, &slice, &rings, &DeviceSpec::parse(&host)?, &local)?;
    Ok(Some(answer(&made, &local)))
}

fn answer(made: &TpuMesh, local: &[TpuCore]) -> Value {
    let mesh = made.mesh();
    json!({
        "device_coordinates_of_client": locations(local),
        "global_core_locations": locations(made.cores()),
        "local_device_ids": Vec::from_iter(mesh.local_device_ids().iter()),
        "mesh_shape": Vec::from_iter(mesh.shape()),
        "local_devices": Vec::from_iter(mesh.local_devices().texts()),
    })
}

fn rings(args: &Value) -> Result<Option<TpuRings>, TpuError> {
    let mut rings = TpuRings::new();
    if let Some(dims) = args["ring_dims"].as_i64() {
        let count = usize::try_from(dims.unsigned_abs()).expect("a small number");
        rings = rings.dims(if dims > 0 {
            RingDims::Leading(count)
        } else {
            RingDims::Trailing(count)
        });
    }
    if let Some(list) = args.get("ring_axes") {
        let Some(axes) = axes(list)? else {
            return Ok(None);
        };
        rings = rings.axes(axes);
    }
    if let Some(list) = args.get("ring_bounds") {
        let Some(bounds) = four(list) else {
            return Ok(None);
        };
        rings = rings.bounds(bounds);
    }
    if let Some(split) = args.get("can_split_host_across_rings") {
        rings = rings.hosts(hosts(split));
    }
    if args["build_ring_across_rings"] == true {
        rings = rings.across(RingAcross::Ring(plane(&args["rotate_ring_across_rings"])));
    }
    Ok(Some(rings))
}

fn axes(list: &Value) -> Result<Option<[TpuAxis; 4]>, TpuError> {
    let axes = texts(list)
        .iter()
        .map(|axis| axis.parse())
        .collect::<Result<Vec<_>, _>>()?;
    Ok(axes.try_into().ok())
}

fn hosts(may_split: &Value) -> TpuHosts {
    if *may_split == true {
        TpuHosts::MaySplit
    } else {
        TpuHosts::Whole
    }
}

fn plane(rotate: &Value) -> RingPlane {
    if *rotate == true {
        RingPlane::Columns
    } else {
        RingPlane::Rows
    }
}

fn topology(sizes: &Value) -> Result<TpuTopology, TpuError> {
    TpuTopology::new(four(sizes).expect("four sizes"))
}

fn four(list: &Value) -> Option<[usize; 4]> {
    let numbers = integers(list)
        .into_iter()
        .map(|number| usize::try_from(number).ok());
    numbers.collect::<Option<Vec<usize>>>()?.try_into().ok()
}

fn size(value: &Value) -> Option<usize> {
    usize::try_from(integer(value)).ok()
}

fn locations(cores: &[TpuCore]) -> Vec<[usize; 4]> {
    cores.iter().map(|core| core.location()).collect()
}
