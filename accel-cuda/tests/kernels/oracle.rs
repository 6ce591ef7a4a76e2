//! The process that runs kernels as host code.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use meshwork_accel::ElementType;

use crate::cc;

pub(crate) struct Oracle {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    turn: u32,
}

/// One run of a kernel; the result replaces the first buffer, or is a buffer of its own.
pub(crate) struct Request<'a> {
    pub(crate) name: String,
    pub(crate) value: u64,
    pub(crate) shift: u32,
    pub(crate) size: usize,
    pub(crate) sources: &'a [Vec<u8>],
}

impl<'a> Request<'a> {
    pub(crate) fn new(name: String, element: ElementType, sources: &'a [Vec<u8>]) -> Self {
        Self {
            name,
            value: 0,
            shift: 0,
            size: element.size(),
            sources,
        }
    }
}

impl Oracle {
    pub(crate) fn start() -> Self {
        let program = cc::compiled("oracle.c", "oracle", &[]);
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what was just compiled runs");
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().expect("piped"),
            child,
            turn: 0,
        }
    }

    /// What the kernel makes of the buffers, by a number of threads that is another each time.
    pub(crate) fn ask(&mut self, request: Request<'_>) -> Vec<u8> {
        self.turn += 1;
        let count = request.sources[0].len() / request.size;
        let mut message = request.name.clone().into_bytes();
        message.resize(48, 0);
        message.extend((count as u64).to_le_bytes());
        message.extend(request.value.to_le_bytes());
        let sources = u32::try_from(request.sources.len()).expect("few");
        let size = u32::try_from(request.size).expect("at most 8");
        let (blocks, threads) = (1 + self.turn % 3, 1 + self.turn % 7);
        for word in [size, sources, request.shift, blocks, threads, 0] {
            message.extend(word.to_le_bytes());
        }
        message.extend(request.sources.iter().flatten());
        let mut result = vec![0; request.sources[0].len()];
        let input = self.input.as_mut().expect("open until dropped");
        thread::scope(|scope| {
            scope.spawn(move || input.write_all(&message).expect("the oracle reads"));
            self.output
                .read_exact(&mut result)
                .expect("the oracle answers");
        });
        result
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.input = None;
        let ended = self.child.wait().expect("a child can be waited for");
        if !thread::panicking() {
            assert!(ended.success(), "{ended}");
        }
    }
}
