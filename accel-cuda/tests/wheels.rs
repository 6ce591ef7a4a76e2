//! The real NVRTC and NCCL, which work without a GPU up to a point: that far they are tested here.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;
#[path = "support/wheel.rs"]
mod wheel;

use std::fs;

use fake::Fake;
use meshwork_accel::{Accelerator, DeviceId, ElementType, Matmul, ProductShape};
use meshwork_accel_cuda::{
    Capability, Compiler, CudaAccelerator, CudaConfig, Error, KernelCache, Libraries, Library,
    Nccl, UniqueId, gpus,
};
use meshwork_testing::in_threads;
use wheel::{CUBLAS, NCCL, NVRTC};

/// Bytes that stand before the code in a file of a cache.
const HASH: usize = 32;

fn nvrtc() -> Option<Libraries> {
    let file = NVRTC.unpacked()?.join("nvidia/cu13/lib/libnvrtc.so.13");
    Some(Libraries::from_env().with_file(Library::Nvrtc, file))
}

fn nccl() -> Option<Libraries> {
    let file = NCCL.unpacked()?.join("nvidia/nccl/lib/libnccl.so.2");
    Some(Libraries::from_env().with_file(Library::Nccl, file))
}

/// Half a minute of a core for each: with `MESHWORK_SOAK` for others than the oldest, which lacks
/// most, too.
#[test]
fn nvrtc_compiles_all_kernels_and_knows_every_architecture_from_7_5_to_12_0() {
    let Some(libraries) = nvrtc() else { return };
    let compiler = Compiler::open(&libraries).expect("the wheel is whole");
    assert_eq!(compiler.version(), "13.0");
    let all: Vec<_> = compiler.architectures().collect();
    for (major, minor) in [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)] {
        assert!(
            all.contains(&Capability::new(major, minor)),
            "{major}.{minor} of {all:?}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder for a cache");
    let cache = KernelCache::at(folder.path());
    let later: &[(u32, u32)] = match std::env::var_os("MESHWORK_SOAK") {
        Some(_) => &[(9, 0), (12, 0)],
        None => &[],
    };
    in_threads(std::iter::once(&(7, 5)).chain(later), |&(major, minor)| {
        let capability = Capability::new(major, minor);
        let file = cache.fill(&libraries, capability).expect("it is known");
        let code = fs::read(file).expect("it was written");
        assert_eq!(
            &code[HASH..HASH + 4],
            b"\x7fELF",
            "machine code for {capability}"
        );
        for kernel in [
            "mw_reduce_sum_bf16",
            "mw_fold_max_f64",
            "mw_divide_i8",
            "mw_scale_f16",
            "mw_fill_8",
            "mw_pointwise_exp_f16",
            "mw_pairwise_divide_f64",
            "mw_place_16",
            "mw_transpose_2",
            "mw_along_xor_bool",
            "mw_product_bf16",
            "mw_arg_max_f16",
        ] {
            let found = code
                .windows(kernel.len())
                .any(|bytes| bytes == kernel.as_bytes());
            assert!(found, "{kernel} for {capability}");
        }
    });
}

#[test]
fn a_gpu_newer_than_nvrtc_gets_ptx_that_moves_16_bytes_at_a_time() {
    let Some(libraries) = nvrtc() else { return };
    let folder = tempfile::tempdir().expect("a folder for a cache");
    let cache = KernelCache::at(folder.path());
    let file = cache
        .fill(&libraries, Capability::new(99, 0))
        .expect("PTX is for all that follow");
    let code = fs::read(file).expect("it was written");
    let text = String::from_utf8_lossy(&code[HASH..]);
    let kernel = |name: &str| {
        let begin = text
            .find(&format!(".entry {name}("))
            .unwrap_or_else(|| panic!("no {name}"));
        let rest = &text[begin..];
        &rest[..rest.find("\n}").unwrap_or(rest.len())]
    };
    for name in [
        "mw_reduce_sum_f32",
        "mw_reduce_max_bf16",
        "mw_reduce_xor_u8",
        "mw_reduce_sum_f64",
        "mw_pointwise_relu_f16",
        "mw_pairwise_add_f32",
        "mw_place_16",
    ] {
        let code = kernel(name);
        let packed = ["ld.global.v4.", "ld.global.v2."]
            .iter()
            .any(|load| code.contains(load));
        assert!(packed, "{code}");
        assert!(!code.contains(".local"), "{name} spills");
    }
    let mut reductions = 0;
    for part in text.split(".visible .entry ").skip(1) {
        let name = &part[..part.find('(').expect("a kernel has arguments")];
        assert!(!part.contains(".local"), "{name}: all stays in registers");
        // Products are fused by their source, and functions by CUDA's library; nothing else is.
        let is_reduction = name.starts_with("mw_reduce") || name.starts_with("mw_fold");
        let is_fused = part.contains("fma.");
        assert!(!(is_reduction && is_fused), "{name} is contracted");
        reductions += usize::from(is_reduction);
    }
    // Each op of two and of many, and a mean of many, of every number.
    assert_eq!(reductions, 2 * (8 * 7 + 4 * 4 + 5) + (8 + 4));
    assert!(kernel("mw_product_f32").contains("fma.rn.f32"));
    assert!(kernel("mw_product_f32").contains("bar.sync"));
}

#[test]
fn a_gpu_older_than_nvrtc_knows_is_refused_by_name() {
    let Some(libraries) = nvrtc() else { return };
    let refused = KernelCache::none().fill(&libraries, Capability::new(7, 0));
    let Err(Error::Compile { architecture, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(architecture, "sm_70");
}

#[test]
fn nccl_loads_and_gives_its_version_and_an_id_of_its_own_each_time() {
    let Some(libraries) = nccl() else { return };
    let nccl = Nccl::open(&libraries).expect("the wheel is whole");
    assert_eq!(nccl.version(), "2.30.7");
    let ids = [nccl.unique_id(), nccl.unique_id()].map(|id| id.expect("there is a network"));
    assert_ne!(ids[0], ids[1]);
    assert_ne!(*ids[0].as_bytes(), [0; UniqueId::BYTES]);
}

/// With a stand-in for the driver, which cuBLAS does not know: it looks for NVIDIA's by itself.
#[test]
fn cublas_loads_and_says_what_it_lacks_where_there_is_no_driver() {
    let Some(wheel) = CUBLAS.unpacked() else {
        return;
    };
    let fake = Fake::new();
    let file = wheel.join("nvidia/cu13/lib/libcublas.so.13");
    let libraries = fake.libraries().with_file(Library::Cublas, file);
    let cuda = CudaAccelerator::open(&CudaConfig::new(libraries, KernelCache::none()));
    let cuda = cuda.expect("a fake driver begins");
    assert_eq!(cuda.matmul_library(), Ok("cuBLAS 13.0.2".to_owned()));
    if gpus(&Libraries::from_env()).is_ok() {
        // cuBLAS lacks nothing; what it then computes is tested in gpu.rs.
        return;
    }
    let buffer = || cuda.allocate(DeviceId::new(0), ElementType::F32, 1);
    let (one, mut into) = (buffer().expect("room"), buffer().expect("room"));
    let shape = ProductShape::new(1, 1, 1).expect("small");
    let refused = cuda.matmul(shape, &one, &one, &mut into);
    let text = refused.expect_err("there is no driver").to_string();
    let lacks = "the library was not initialized: cuBLAS 13.0.2 on a driver for CUDA 13.0";
    assert!(
        text.contains("cublasCreate") && text.contains(lacks),
        "{text}"
    );
    drop((one, into, cuda));
    fake.is_clean();
}

#[test]
fn libraries_of_an_active_environment_are_found_where_pip_puts_them() {
    let (Some(nvrtc), Some(nccl)) = (NVRTC.unpacked(), NCCL.unpacked()) else {
        return;
    };
    let program = std::env::current_exe().expect("a test is a program");
    let folder = tempfile::tempdir().expect("a folder for an environment");
    let site = folder.path().join("lib/python3.12/site-packages");
    fs::create_dir_all(site.join("nvidia")).expect("it is writable");
    let link = |from: std::path::PathBuf, to| std::os::unix::fs::symlink(from, site.join(to));
    link(nvrtc.join("nvidia/cu13"), "nvidia/cu13").expect("it is writable");
    link(nccl.join("nvidia/nccl"), "nvidia/nccl").expect("it is writable");
    let child = std::process::Command::new(program)
        .args(["--exact", "child_looks_around", "--nocapture"])
        .env_clear()
        .env("VIRTUAL_ENV", folder.path())
        .env("MESHWORK_TEST_CHILD", "1")
        .output()
        .expect("the test starts itself");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("found 13.0 and 2.30.7"), "{said}");
}

/// Does nothing unless it is started by the test above.
#[test]
fn child_looks_around() {
    if std::env::var_os("MESHWORK_TEST_CHILD").is_none() {
        return;
    }
    let libraries = Libraries::from_env();
    let compiler = Compiler::open(&libraries).expect("found in the environment");
    let nccl = Nccl::open(&libraries).expect("found in the environment");
    println!("found {} and {}", compiler.version(), nccl.version());
}
