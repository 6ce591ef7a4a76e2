//! Functions and numbers as they are used here, of cudarc or of our own, against NVIDIA's headers:
//! the C compiler compares them.

#[path = "../../tests/support/cc.rs"]
mod cc;
#[path = "../../tests/support/wheel.rs"]
mod wheel;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use cudarc::{cublas, driver, nccl, nvrtc};

use super::collectives::Collectives;
use super::compiler::Nvrtc;
use super::driver::Driver;
use super::foreign::Symbol;

/// What a type, as Rust writes it out, is in C.
fn in_c(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("{} const *", in_c(target));
    }
    let name = rust.rsplit("::").next().unwrap_or(rust);
    let tag = |kind: &str| format!("{kind} {name}");
    match name {
        "i32" => "int".to_owned(),
        "u32" => "unsigned int".to_owned(),
        "i8" => "char".to_owned(),
        "u8" => "unsigned char".to_owned(),
        "u64" => "unsigned long long".to_owned(),
        "i64" => "long long".to_owned(),
        "usize" => "size_t".to_owned(),
        "c_void" => "void".to_owned(),
        // A structure of each version of NCCL has its own name.
        name if name.starts_with("ncclConfig_v") => "ncclConfig_t".to_owned(),
        "ncclComm" | "cublasContext" | "_nvrtcProgram" => tag("struct"),
        name if name.ends_with("_st") => tag("struct"),
        name if name.ends_with("_enum") => tag("enum"),
        name => name.to_owned(),
    }
}

/// The arguments of a function, as Rust writes its type out.
fn arguments(function: &str) -> Vec<&str> {
    let inside = function.split_once("fn(").expect("it is a function").1;
    let inside = inside.rsplit_once(')').expect("its arguments end").0;
    inside.split(", ").filter(|kind| !kind.is_empty()).collect()
}

/// A pointer to each function, of the type by which it is called: of another than the header has,
/// it cannot be set without a warning.
fn pointers(declared: &[Symbol], result: &str, header: &str) -> String {
    let mut text = format!("#include <{header}>\n");
    for (name, function) in declared {
        let types: Vec<_> = arguments(function).into_iter().map(in_c).collect();
        let taken = match types.is_empty() {
            true => "void".to_owned(),
            false => types.join(", "),
        };
        let result = match function.ends_with("-> u32") {
            true => result,
            false => "const char *",
        };
        let _ = writeln!(text, "{result} (*ours_{name})({taken}) = {name};");
    }
    text
}

/// Numbers of cudarc's, by their names in the headers.
macro_rules! numbers {
    ($($kind:path { $($name:ident),+ $(,)? })+) => {{
        let mut text = String::new();
        $($(
            let _ = writeln!(
                text,
                "_Static_assert((long long){0} == {1}, \"{0}\");",
                stringify!($name),
                <$kind>::$name as i64,
            );
        )+)+
        text
    }};
}

#[track_caller]
fn agree(text: &str, includes: &[PathBuf]) {
    let folder = tempfile::tempdir().expect("a folder for a source");
    let source = folder.path().join("table.c");
    fs::write(&source, text).expect("it is writable");
    let mut command = cc::cc();
    command.args([
        "-std=gnu11",
        "-fsyntax-only",
        "-Werror=all",
        "-Werror=incompatible-pointer-types",
    ]);
    command.args([
        "-Werror=int-conversion",
        "-Werror=enum-conversion",
        "-Wno-unused",
    ]);
    command.args(["-Werror=implicit-function-declaration"]);
    for include in includes {
        command.arg("-isystem").arg(include);
    }
    let output = command
        .arg(&source)
        .output()
        .expect("a C compiler, which the project needs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{text}");
}

fn headers() -> Option<PathBuf> {
    Some(wheel::RUNTIME.unpacked()?.join("nvidia/cu13/include"))
}

#[test]
fn the_driver_is_called_as_its_header_says() {
    let Some(headers) = headers() else { return };
    let declared = Driver::declared();
    assert!(declared.len() > 30);
    let mut text = pointers(&declared, "CUresult", "cuda.h");
    text += &numbers! {
        driver::sys::CUresult {
            CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_READY,
        }
        driver::sys::CUstream_flags { CU_STREAM_NON_BLOCKING }
        driver::sys::CUevent_flags { CU_EVENT_DISABLE_TIMING }
        driver::sys::CUdevice_attribute {
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        }
        driver::sys::CUmemPool_attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        }
    };
    for (name, value) in [
        (
            "CU_MEMHOSTALLOC_PORTABLE",
            driver::sys::CU_MEMHOSTALLOC_PORTABLE,
        ),
        (
            "CU_MEMHOSTREGISTER_PORTABLE",
            driver::sys::CU_MEMHOSTREGISTER_PORTABLE,
        ),
    ] {
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"{name}\");");
    }
    agree(&text, &[headers]);
}

#[test]
fn the_compiler_is_called_as_its_header_says() {
    let Some(nvrtc) = wheel::NVRTC.unpacked() else {
        return;
    };
    let mut text = pointers(&Nvrtc::declared(), "nvrtcResult", "nvrtc.h");
    text += &numbers! {
        nvrtc::sys::nvrtcResult {
            NVRTC_SUCCESS, NVRTC_ERROR_COMPILATION, NVRTC_ERROR_INVALID_OPTION,
        }
    };
    agree(&text, &[nvrtc.join("nvidia/cu13/include")]);
}

#[test]
fn nccl_is_called_as_its_header_says_with_the_beginning_of_its_configuration() {
    let (Some(headers), Some(nccl)) = (headers(), wheel::NCCL.unpacked()) else {
        return;
    };
    // The header wants those of 16-bit floats for C++ only, which are in no wheel without a
    // compiler.
    let stand_ins = tempfile::tempdir().expect("a folder for headers");
    let stand_in =
        |name: &str, text: &str| fs::write(stand_ins.path().join(name), text).expect("writable");
    stand_in(
        "cuda_runtime.h",
        "#include <stddef.h>\n#define CUDART_VERSION 13000\ntypedef struct CUstream_st *cudaStream_t;\n",
    );
    stand_in("cuda_fp16.h", "");
    stand_in("cuda_bf16.h", "");
    let mut text = pointers(&Collectives::declared(), "ncclResult_t", "nccl.h");
    text.push_str("#include <stddef.h>\n");
    for (field, offset) in super::collectives::CONFIG {
        let _ = writeln!(
            text,
            "_Static_assert(offsetof(ncclConfig_t, {field}) == {offset}, \"{field}\");"
        );
    }
    for (name, value) in super::collectives::NUMBERS {
        let _ = writeln!(
            text,
            "_Static_assert((unsigned){name} == {value}u, \"{name}\");"
        );
    }
    text += &numbers! {
        nccl::sys::ncclResult_t { ncclSuccess, ncclInProgress, ncclSystemError, ncclRemoteError }
        nccl::sys::ncclRedOp_t { ncclSum, ncclProd, ncclMax, ncclMin }
        nccl::sys::ncclDataType_t {
            ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16,
            ncclFloat32, ncclFloat64, ncclBfloat16,
        }
    };
    text.push_str("_Static_assert(sizeof(ncclUniqueId) == 128, \"\");\n");
    agree(
        &text,
        &[
            stand_ins.path().to_owned(),
            nccl.join("nvidia/nccl/include"),
            headers,
        ],
    );
}

#[test]
fn cublas_is_called_as_its_header_says() {
    let (Some(headers), Some(cublas)) = (headers(), wheel::CUBLAS.unpacked()) else {
        return;
    };
    let mut text = "#include <stddef.h>\n".to_owned();
    text += &pointers(&super::blas::declared(), "cublasStatus_t", "cublas_v2.h");
    text += &numbers! {
        cublas::sys::cublasStatus_t {
            CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_ARCH_MISMATCH,
        }
        cublas::sys::cublasOperation_t { CUBLAS_OP_N }
        cublas::sys::cublasMath_t { CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION }
        cublas::sys::cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F }
        cublas::sys::cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT }
        cublas::sys::cudaDataType { CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF }
        cublas::sys::libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL }
    };
    text += "_Static_assert(CUBLAS_POINTER_MODE_HOST == 0, \"CUBLAS_POINTER_MODE_HOST\");\n";
    // Headers that come with a compiler only.
    let stand_ins = tempfile::tempdir().expect("a folder for headers");
    let folder = stand_ins.path();
    fs::create_dir(folder.join("crt")).expect("writable");
    for (name, text) in [
        ("crt/host_defines.h", HOST_DEFINES),
        (
            "cuda_fp16.h",
            "typedef struct { unsigned short x; } __half;\n",
        ),
        (
            "cuda_bf16.h",
            "typedef struct { unsigned short x; } __nv_bfloat16;\n",
        ),
    ] {
        fs::write(folder.join(name), text).expect("writable");
    }
    agree(
        &text,
        &[
            stand_ins.path().to_owned(),
            cublas.join("nvidia/cu13/include"),
            headers,
        ],
    );
}

/// What headers of CUDA say of their types to its compiler.
const HOST_DEFINES: &str = "#define __device_builtin__
#define __host__
#define __device__
#define __align__(bytes)
#define __builtin_align__(bytes)
#define __forceinline__ inline
#define __cuda_builtin_vector_align8(tag, members) struct tag { members }
";
