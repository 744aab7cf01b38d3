//! Traces all system calls of one thread of a child process with ptrace(2).

#![allow(unsafe_code, reason = "ptrace has no safe form in what we depend on; it is of tests alone")]

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

use libc::{c_int, c_void, pid_t};

/// How often each system call was made, by number.
pub(crate) type Calls = BTreeMap<i64, u64>;

/// The system calls that a thread makes while `work` runs. The thread must not sleep forever: it is observed only when
/// it makes a call.
///
/// # Errors
/// The kernel does not let a parent trace its child.
pub(crate) fn calls(thread: pid_t, work: impl FnOnce()) -> io::Result<Calls> {
    let over = AtomicBool::new(false);
    let (ready, seized) = mpsc::channel();
    std::thread::scope(|scope| {
        // ptrace is bound to the thread that attached.
        let tracer = scope.spawn(|| {
            let begun = seize(thread);
            let failed = begun.is_err();
            let _ = ready.send(begun);
            if failed { Ok(Calls::new()) } else { follow(thread, &over) }
        });
        seized.recv().map_err(io::Error::other)??;
        work();
        over.store(true, SeqCst);
        tracer.join().map_err(|_| io::Error::other("the tracer panicked"))?
    })
}

fn ptrace(request: libc::c_uint, thread: pid_t, address: usize, data: *mut c_void) -> io::Result<i64> {
    // SAFETY: `data` is a number, or a place that is as long as `address` says.
    match unsafe { libc::ptrace(request, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        given => Ok(given),
    }
}

/// Waits until the thread stops, and returns the reason; `None` if it has ended.
fn stop(thread: pid_t) -> io::Result<Option<c_int>> {
    let mut status = 0;
    // SAFETY: `status` is a place of ours.
    if unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::WIFSTOPPED(status).then_some(status >> 8))
}

/// Attaches to the thread.
fn seize(thread: pid_t) -> io::Result<()> {
    let marked = ptr::without_provenance_mut(libc::PTRACE_O_TRACESYSGOOD as usize);
    ptrace(libc::PTRACE_SEIZE, thread, 0, marked)?;
    ptrace(libc::PTRACE_INTERRUPT, thread, 0, ptr::null_mut())?;
    stop(thread).map(|_| ())
}

/// Lets the thread run from one system call to the next until `over` is set.
fn follow(thread: pid_t, over: &AtomicBool) -> io::Result<Calls> {
    const CALL: c_int = libc::SIGTRAP | 0x80;
    let mut calls = Calls::new();
    let mut signal = 0;
    while !over.load(SeqCst) {
        ptrace(libc::PTRACE_SYSCALL, thread, 0, ptr::without_provenance_mut(signal as usize))?;
        signal = 0;
        match stop(thread)? {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(CALL) => {
                if let Some(number) = entered(thread)? {
                    *calls.entry(number).or_default() += 1;
                }
            }
            // Others are events of ptrace itself; a signal is passed on.
            Some(other) if other < CALL && other != libc::SIGTRAP => signal = other,
            Some(_) => {}
        }
    }
    ptrace(libc::PTRACE_DETACH, thread, 0, ptr::null_mut())?;
    Ok(calls)
}

/// The number of the system call that is entered; `None` if one returns.
fn entered(thread: pid_t) -> io::Result<Option<i64>> {
    const ENTRY: u8 = 1;
    // `struct ptrace_syscall_info`: the operation, the position of the thread, and, on entry, the call's number.
    let mut info = [0u64; 16];
    ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size_of_val(&info), info.as_mut_ptr().cast())?;
    Ok((info[0].to_ne_bytes()[0] == ENTRY).then(|| info[3] as i64))
}

/// The name of a system call, for those that a worker is known to make.
pub(crate) fn name(number: i64) -> String {
    const KNOWN: [(i64, &str); 9] = [
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_writev, "writev"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_epoll_ctl, "epoll_ctl"),
        (libc::SYS_futex, "futex"),
    ];
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_epoll_wait {
        return "epoll_wait".to_owned();
    }
    let known = KNOWN.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}
