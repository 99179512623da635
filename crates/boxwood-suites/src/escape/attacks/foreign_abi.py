# The same forbidden calls under other numbers: 32-bit (`int 0x80`) and x32, which a filter that
# looks only at the number would let through.
import mmap
if os.uname().machine != "x86_64":
    check("no second ABI here", True, os.uname().machine)
    finish()
# push rbx; mov eax,edi; mov ebx,esi; xchg edx,ecx; int 0x80; cdqe; pop rbx; ret
CODE = bytes.fromhex("5389f889f387cacd8048985bc3")
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(CODE)
entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
int80 = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(entry)


def old(number, a=0, b=0, c=0):
    def attack():
        answer = int80(number, a, b, c)
        if -4096 < answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return "answered %d" % answer
    return attack


def as_signed(value):
    return value - (1 << 32) if value & 0x80000000 else value


# A kernel without 32-bit support answers `int 0x80` with a fault.
DEATHS = {signal.SIGSYS, signal.SIGSEGV}
probe("i386 unshare user", old(310, as_signed(CLONE_NEWUSER)), deaths=DEATHS)
probe("i386 keyctl", old(288, 0, -3, 1), deaths=DEATHS)
probe("i386 clone user", old(120, as_signed(CLONE_NEWUSER | signal.SIGCHLD)), deaths=DEATHS)
probe("i386 userfaultfd", old(374, 1), deaths=DEATHS)
X32 = 0x40000000
probe("x32 unshare user", lambda: call(X32 | 272, CLONE_NEWUSER))
probe("x32 keyctl", lambda: call(X32 | 250, 0, -3, 1))
probe("x32 userfaultfd", lambda: call(X32 | 323, 1))
probe("x32 bpf", lambda: call(X32 | 321, 0, struct.pack("IIIII", 1, 4, 4, 1, 0) + bytes(100), 120))
finish()
