//! What is said where a library is missing, is another one, or is too old; never a panic.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;

use std::fs;
use std::path::Path;

use fake::Fake;
use meshwork_accel::{
    self as accel, Absence, Accelerator, DeviceId, ElementType, Matmul, ProductShape,
};
use meshwork_accel_cuda::{
    Capability, Compiler, CudaAccelerator, CudaConfig, Error, KernelCache, Libraries, Library,
    Nccl, gpus,
};

fn nowhere(library: Library) -> Libraries {
    Libraries::from_env().with_file(library, "/nowhere/lib.so")
}

#[test]
fn a_missing_library_is_named_with_what_was_tried_and_what_to_do() {
    let config = CudaConfig::new(nowhere(Library::Driver), KernelCache::none());
    let driver = CudaAccelerator::open(&config).err();
    let nvrtc = Compiler::open(&nowhere(Library::Nvrtc)).err();
    let nccl = Nccl::open(&nowhere(Library::Nccl)).err();
    for (refused, name) in [(driver, "libcuda"), (nvrtc, "libnvrtc"), (nccl, "libnccl")] {
        let Some(Error::NotLoadable {
            library,
            tried,
            said,
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(
            (tried.as_slice(), said.as_str()),
            (["/nowhere/lib.so".to_owned()].as_slice(), "no such file")
        );
        let text = Error::NotLoadable {
            library,
            tried,
            said,
        }
        .to_string();
        assert!(
            text.contains(name) && text.contains(library.variable()),
            "{text}"
        );
        assert!(
            text.contains("install") && text.contains("/nowhere/lib.so"),
            "{text}"
        );
    }
}

#[test]
fn products_are_refused_where_their_library_is_named_and_missing_and_made_where_it_is_left_out() {
    let fake = Fake::new();
    let product = |libraries: Libraries| -> Result<_, Error> {
        let cuda = CudaAccelerator::open(&CudaConfig::new(libraries, KernelCache::none()))?;
        let one = ProductShape::new(1, 1, 1)?;
        let (device, element) = (DeviceId::new(0), ElementType::F32);
        let mut buffers = Vec::new();
        for _ in 0..3 {
            buffers.push(cuda.allocate(device, element, 1)?);
        }
        let [left, right, into] = &mut buffers[..] else {
            panic!("three buffers")
        };
        cuda.matmul(one, left, right, into)?;
        Ok(cuda.matmul_library())
    };
    let libraries = fake
        .libraries()
        .with_file(Library::Cublas, "/nowhere/libcublas.so.13");
    let refused = product(libraries).expect_err("it is nowhere").to_string();
    assert!(refused.contains("libcublas"), "{refused}");
    assert!(refused.contains("MESHWORK_CUBLAS"), "{refused}");
    // Another library of that name.
    let libraries = fake
        .libraries()
        .with_file(Library::Cublas, fake.file("nvrtc"));
    let refused = product(libraries).expect_err("it is another").to_string();
    assert!(
        refused.contains("has no function cublasGetProperty"),
        "{refused}"
    );
    let made = product(fake.libraries().without(Library::Cublas));
    let absent = made.expect("by a kernel").expect_err("it is left out");
    assert!(
        absent.to_string().contains("the program leaves it out"),
        "{absent}"
    );
    fake.is_clean();
}

#[test]
fn a_file_that_is_no_library_is_reported_in_the_words_of_the_loader() {
    let folder = tempfile::tempdir().expect("a folder for a file");
    let file = folder.path().join("libcuda.so.1");
    fs::write(&file, "no ELF").expect("it is writable");
    let libraries = Libraries::from_env().with_file(Library::Driver, &file);
    let Err(Error::NotLoadable { said, .. }) = gpus(&libraries) else {
        panic!("a text is no library");
    };
    assert!(said.contains("libcuda.so.1"), "{said}");
}

#[test]
fn a_missing_function_is_named_with_its_library_and_file() {
    let fake = Fake::with(&["WITHOUT_LOG"]);
    let refused = CudaAccelerator::open(&fake.config()).err();
    let Some(Error::NoFunction {
        library,
        file,
        function,
    }) = refused.clone()
    else {
        panic!("{refused:?}");
    };
    assert_eq!((library, function), (Library::Nvrtc, "nvrtcGetProgramLog"));
    assert!(file.ends_with("libnvrtc.so"), "{file}");
    fake.is_clean();
    let text = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(
        text.contains("has no function nvrtcGetProgramLog"),
        "{text}"
    );
}

#[test]
fn another_library_of_that_name_lacks_its_first_function() {
    let fake = Fake::new();
    let (cuda, nvrtc) = (fake.file("cuda"), fake.file("nvrtc"));
    let libraries = Libraries::from_env()
        .with_file(Library::Driver, nvrtc)
        .with_file(Library::Nvrtc, &cuda)
        .with_file(Library::Nccl, &cuda);
    let missing = |refused: Option<Error>| match refused {
        Some(Error::NoFunction { function, .. }) => function,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(gpus(&libraries).err()), "cuInit");
    assert_eq!(missing(Compiler::open(&libraries).err()), "nvrtcVersion");
    assert_eq!(missing(Nccl::open(&libraries).err()), "ncclGetVersion");
}

#[test]
fn a_driver_without_gpus_and_one_too_old_are_told_apart() {
    let none = Fake::new().set("cuda", "fake_gpus", 0);
    assert_eq!(gpus(&none.libraries()).err(), Some(Error::NoDevices));
    assert_eq!(
        CudaAccelerator::open(&none.config()).err(),
        Some(Error::NoDevices)
    );
    let old = Fake::new().set("cuda", "fake_version", 11_080);
    let expected = Error::TooOld {
        library: Library::Driver,
        found: "11.8".to_owned(),
        needed: "12.0".to_owned(),
    };
    assert_eq!(gpus(&old.libraries()).err(), Some(expected));
}

#[test]
fn an_nccl_that_is_too_old_is_refused_with_both_versions() {
    let old = Fake::with_collectives().set("nccl", "fake_version", 22_699);
    let expected = Error::TooOld {
        library: Library::Nccl,
        found: "2.26.99".to_owned(),
        needed: "2.27.0".to_owned(),
    };
    assert_eq!(Nccl::open(&old.libraries()).err(), Some(expected));
    let oldest = Fake::with_collectives().set("nccl", "fake_version", 22_700);
    assert_eq!(Nccl::open(&oldest.libraries()).err(), None);
}

#[test]
fn a_driver_that_refuses_to_begin_is_quoted_by_a_code_that_nobody_knows_yet() {
    let fake = Fake::new();
    fake.fail("cuInit", 0, 987_654);
    let expected = Error::Call {
        function: "cuInit",
        code: 987_654,
        status: "unknown: unknown".to_owned(),
    };
    assert_eq!(gpus(&fake.libraries()).err(), Some(expected));
}

#[test]
fn gpus_are_listed_without_using_them() {
    let fake = Fake::new();
    let found = gpus(&fake.libraries()).expect("a fake driver begins");
    let texts: Vec<_> = found.iter().map(|(device, _)| device.to_string()).collect();
    assert_eq!(
        texts,
        [
            "GPU:0 (Fake 0) at 0000:00:00.0",
            "GPU:1 (Fake 1) at 0000:01:00.0"
        ]
    );
    assert_eq!(found[1].1.total(), Some(64 << 20));
    fake.is_clean();
}

#[test]
fn a_gpu_that_is_not_there_and_a_limit_too_large_are_refused() {
    let fake = Fake::new();
    let refused = |config: CudaConfig| CudaAccelerator::open(&config).err();
    let unknown = Error::UnknownGpu {
        ordinal: 2,
        available: 2,
    };
    assert_eq!(refused(fake.config().with_gpus([0, 2])), Some(unknown));
    let limit = (64 << 20) + 1;
    let too_large = Error::LimitTooLarge {
        ordinal: 0,
        devices: 1,
        limit,
        total: 64 << 20,
    };
    assert_eq!(
        refused(fake.config().with_memory_limit(limit)),
        Some(too_large)
    );
    fake.is_clean();
}

#[test]
fn kernels_that_do_not_compile_show_the_log() {
    let fake = Fake::with(&["REFUSING"]);
    let expected = Error::Compile {
        architecture: "sm_90".to_owned(),
        log: "refused sm_90".to_owned(),
    };
    assert_eq!(CudaAccelerator::open(&fake.config()).err(), Some(expected));
    fake.is_clean();
}

#[test]
fn a_driver_older_than_the_compiler_is_named_with_the_package_that_fits_it() {
    let fake = Fake::new().set("cuda", "fake_version", 12_040);
    fake.fail("cuModuleLoadData", 0, 222);
    let refused = CudaAccelerator::open(&fake.config()).err();
    let expected = Error::CompilerTooNew {
        compiler: "13.0".to_owned(),
        driver: "12.4".to_owned(),
        code: 222,
        status: "unknown: unknown".to_owned(),
    };
    assert_eq!(refused, Some(expected.clone()));
    let text = expected.to_string();
    assert!(text.contains("nvidia-cuda-nvrtc-cu12==12.4.*"), "{text}");
    fake.is_clean();
    // Of the same version, it is no matter of versions.
    let same = Fake::new();
    same.fail("cuModuleLoadData", 0, 222);
    let refused = CudaAccelerator::open(&same.config()).err();
    assert!(matches!(refused, Some(Error::Call { .. })), "{refused:?}");
    same.is_clean();
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_time_but_filling_it_fails() {
    let fake = Fake::new();
    let folder = tempfile::tempdir().expect("a folder for a file");
    let file = folder.path().join("file");
    fs::write(&file, "in the way").expect("it is writable");
    let cache = KernelCache::at(file.join("cache"));
    let filled = cache.fill(&fake.libraries(), Capability::new(9, 0));
    assert!(matches!(filled, Err(Error::Cache { .. })), "{filled:?}");
    let opened = CudaAccelerator::open(&CudaConfig::new(fake.libraries(), cache));
    assert!(opened.is_ok());
}

#[test]
fn a_full_cache_is_used_and_a_damaged_one_is_not() {
    let fake = Fake::new();
    let folder = tempfile::tempdir().expect("a folder for a cache");
    let cache = KernelCache::at(folder.path());
    let config = CudaConfig::new(fake.libraries(), cache.clone());
    let file = cache
        .fill(&fake.libraries(), Capability::new(9, 0))
        .expect("it is writable");
    let compiled = fs::read(&file).expect("it was written");
    drop(CudaAccelerator::open(&config).expect("a fake driver begins"));
    fs::write(&file, &compiled[..compiled.len() - 1]).expect("it is writable");
    drop(CudaAccelerator::open(&config).expect("compiled again"));
    assert_eq!(
        fs::read(&file).expect("it is there"),
        compiled,
        "and written again"
    );
}

#[test]
fn the_layers_above_get_library_reason_and_remedy() {
    let missing = Compiler::open(&nowhere(Library::Nvrtc)).map(drop);
    let above = accel::Error::from(missing.expect_err("it is nowhere"));
    let accel::Error::Unavailable {
        backend,
        library,
        absence,
        remedy,
    } = above
    else {
        panic!("{above}");
    };
    assert_eq!((backend, absence), ("CUDA", Absence::NotFound));
    assert!(library.contains("libnvrtc") && remedy.contains("pip install"));
    let unknown = Error::UnknownGpu {
        ordinal: 2,
        available: 1,
    };
    let expected = accel::Error::UnknownDevice {
        device: DeviceId::new(2),
        available: 1,
    };
    assert_eq!(accel::Error::from(unknown), expected);
    let asked = Error::TooManyDevices {
        asked: 33,
        most: 32,
    };
    let text = accel::Error::from(asked).to_string();
    assert!(
        text.contains("33 devices in one process are too many"),
        "{text}"
    );
}

#[test]
fn nothing_panics_where_libraries_are_missing_or_others_even_if_a_panic_would_abort() {
    let fake = Fake::new();
    let named = |driver: &Path, others: &Path| {
        let program = std::env::current_exe().expect("a test is a program");
        let child = std::process::Command::new(program)
            .args(["--exact", "child_without_libraries", "--nocapture"])
            .env("MESHWORK_TEST_CHILD", "1")
            .env("MESHWORK_CUDA_DRIVER", driver)
            .env("MESHWORK_NVRTC", others)
            .env("MESHWORK_NCCL", others)
            .output()
            .expect("the test starts itself");
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{}: {said}", child.status);
        said
    };
    let nowhere = Path::new("/nowhere/lib.so");
    let missing = named(nowhere, nowhere);
    assert_eq!(missing.matches("cannot be loaded").count(), 5, "{missing}");
    let swapped = named(&fake.file("nvrtc"), &fake.file("cuda"));
    assert_eq!(swapped.matches("has no function").count(), 5, "{swapped}");
}

/// Does nothing unless it is started by the test above.
#[test]
fn child_without_libraries() {
    if std::env::var_os("MESHWORK_TEST_CHILD").is_none() {
        return;
    }
    // What `panic = "abort"` does: even a panic that somebody would catch ends the process.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let libraries = Libraries::from_env();
    let errors = [
        CudaAccelerator::new().err(),
        gpus(&libraries).err(),
        Compiler::open(&libraries).err(),
        Nccl::open(&libraries).err(),
        KernelCache::none()
            .fill(&libraries, Capability::new(9, 0))
            .err(),
    ];
    for error in errors {
        println!("{}", error.expect("none of them is what it is named for"));
    }
    drop(std::panic::take_hook());
}
