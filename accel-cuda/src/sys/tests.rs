//! The tables against NVIDIA's headers: the C compiler compares each declaration.

#[path = "../../tests/support/cc.rs"]
mod cc;
#[path = "../../tests/support/wheel.rs"]
mod wheel;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use super::blas::Blas;
use super::collectives::Collectives;
use super::compiler::Nvrtc;
use super::driver::Driver;
use super::shared_library::Symbol;

/// What a Rust type of a table is in C. Handles are pointers there, and numbers as large here.
fn in_c(rust: &str, library: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(target, library));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return match target {
            "*const c_char" => "const char *const *".to_owned(),
            _ => format!("const {} *", in_c(target, library)),
        };
    }
    let name = match (rust, library) {
        ("Code", "cuda") => "CUresult",
        ("Code", "nvrtc") => "nvrtcResult",
        ("Code", "cublas") => "cublasStatus_t",
        ("Code", _) => "ncclResult_t",
        // NCCL and cuBLAS take addresses of a device as pointers.
        ("Address", "nccl" | "cublas") => "void *",
        ("Scalar", _) => "const void *",
        ("Property", _) => "libraryPropertyType",
        ("BlasHandle", _) => "cublasHandle_t",
        ("Address", _) => "CUdeviceptr",
        ("DeviceHandle", _) => "CUdevice",
        ("ContextHandle", _) => "CUcontext",
        ("StreamHandle", "nccl" | "cublas") => "cudaStream_t",
        ("StreamHandle", _) => "CUstream",
        ("EventHandle", _) => "CUevent",
        ("ModuleHandle", _) => "CUmodule",
        ("FunctionHandle", _) => "CUfunction",
        ("ProgramHandle", _) => "nvrtcProgram",
        ("CommHandle", _) => "ncclComm_t",
        ("Id", _) => "ncclUniqueId",
        ("Config", _) => "ncclConfig_t",
        ("c_int", _) => "int",
        ("c_uint", _) => "unsigned int",
        ("c_char", _) => "char",
        ("c_void", _) => "void",
        ("u8", _) => "unsigned char",
        ("usize", _) => "size_t",
        ("i64", _) => "long long",
        _ => panic!("{rust} is in no table"),
    };
    name.to_owned()
}

/// A call of each function with arguments of our types: what converts to what the header has,
/// without a warning, is passed as the header has it.
fn calls(declared: &[Symbol], library: &str, header: &str) -> String {
    let mut text = format!("#include <{header}>\n");
    for (name, result, arguments) in declared {
        let types: Vec<_> = arguments
            .iter()
            .map(|argument| in_c(argument, library))
            .collect();
        let named = types
            .iter()
            .enumerate()
            .map(|(i, kind)| format!("{kind} a{i}"));
        let named: Vec<_> = named.collect();
        let passed: Vec<_> = (0..types.len()).map(|i| format!("a{i}")).collect();
        let (named, passed) = (named.join(", "), passed.join(", "));
        let sizes: Vec<_> = types
            .iter()
            .enumerate()
            .map(|(i, _)| format!("sizeof a{i}"))
            .collect();
        let _ = writeln!(
            text,
            "{} ours_{name}({}) {{ (void)({}); return {name}({passed}); }}",
            in_c(result, library),
            if named.is_empty() { "void" } else { &named },
            if sizes.is_empty() {
                "0".to_owned()
            } else {
                sizes.join(" + ")
            },
        );
    }
    text
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
    assert!(Driver::DECLARED.len() > 30);
    let mut text = calls(Driver::DECLARED, "cuda", "cuda.h");
    for (name, value) in [
        ("CUDA_ERROR_OUT_OF_MEMORY", super::driver::OUT_OF_MEMORY),
        ("CUDA_ERROR_NO_DEVICE", super::driver::NO_DEVICE),
        ("CUDA_ERROR_NOT_READY", super::driver::NOT_READY),
        ("CU_STREAM_NON_BLOCKING", super::driver::STREAM_NON_BLOCKING),
        (
            "CU_EVENT_DISABLE_TIMING",
            super::driver::EVENT_DISABLE_TIMING,
        ),
        (
            "CU_MEMHOSTALLOC_PORTABLE",
            super::driver::HOST_ALLOC_PORTABLE,
        ),
        (
            "CU_MEMHOSTREGISTER_PORTABLE",
            super::driver::HOST_REGISTER_PORTABLE,
        ),
    ] {
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"{name}\");");
    }
    for (name, value) in [
        ("MULTIPROCESSOR_COUNT", super::driver::MULTIPROCESSOR_COUNT),
        ("COMPUTE_CAPABILITY_MAJOR", super::driver::CAPABILITY_MAJOR),
        ("COMPUTE_CAPABILITY_MINOR", super::driver::CAPABILITY_MINOR),
    ] {
        let _ = writeln!(
            text,
            "_Static_assert(CU_DEVICE_ATTRIBUTE_{name} == {value}, \"{name}\");"
        );
    }
    text.push_str(
        "_Static_assert(sizeof(CUdeviceptr) == 8 && sizeof(CUcontext) == sizeof(size_t), \"\");\n",
    );
    agree(&text, &[headers]);
}

#[test]
fn the_compiler_is_called_as_its_header_says() {
    let Some(nvrtc) = wheel::NVRTC.unpacked() else {
        return;
    };
    let text = calls(Nvrtc::DECLARED, "nvrtc", "nvrtc.h");
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
    let mut text = calls(Collectives::DECLARED, "nccl", "nccl.h");
    text.push_str("#include <stddef.h>\n");
    for (field, offset) in super::collectives::Config::OFFSETS {
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
    text += &calls(Blas::DECLARED, "cublas", "cublas_v2.h");
    for (name, value) in super::blas::NUMBERS {
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"{name}\");");
    }
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
