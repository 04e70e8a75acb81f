import { arch } from "node:os";

/**
 * A seccomp filter that refuses what reaches around namespaces and limits. It is a list of what is refused, since Node
 * needs most of the rest; calls are refused with EPERM, so that a program sees an error and not a crash.
 */

/** Numbers of system calls by architecture: x64, arm64. Calls since Linux 5.0 have the same number everywhere. */
const refused: Readonly<Record<string, readonly [number, number]>> = {
  ptrace: [101, 117],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  setns: [308, 268],
  unshare: [272, 97],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  keyctl: [250, 219],
  add_key: [248, 217],
  request_key: [249, 218],
  swapon: [167, 224],
  swapoff: [168, 225],
  reboot: [169, 142],
  acct: [163, 89],
  quotactl: [179, 60],
  personality: [135, 92],
  syslog: [103, 116],
  settimeofday: [164, 170],
  clock_settime: [227, 112],
  adjtimex: [159, 171],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  kcmp: [312, 272],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  pidfd_getfd: [438, 438],
  process_madvise: [440, 440],
  mount_setattr: [442, 442],
};

const architectures: Readonly<Record<string, { audit: number; column: 0 | 1; clone: number }>> = {
  x64: { audit: 0xc000_003e, column: 0, clone: 56 },
  arm64: { audit: 0xc000_00b7, column: 1, clone: 220 },
};

/** All flags of `clone` that make a namespace. */
const namespaceFlags = 0x7e02_0000;
/** `clone3` passes its flags in memory, where a filter cannot see them; without it, libraries use `clone`. */
const clone3 = 435;
const x32Bit = 0x4000_0000;

// Operations of classic BPF, and where `struct seccomp_data` has its fields.
const load = 0x20;
const jumpIfEqual = 0x15;
const jumpIfAtLeast = 0x35;
const jumpIfAnySet = 0x45;
const end = 0x06;
const field = { number: 0, architecture: 4, firstArgument: 16 };
const allow = 0x7fff_0000;
const kill = 0x8000_0000;
const fail = (errno: number): number => 0x0005_0000 | errno;
const [EPERM, ENOSYS] = [1, 38];

/** Whether there is a filter for this machine. */
export const hasSeccompFilter = (): boolean => architectures[arch()] !== undefined;

/** The filter as the kernel takes it: an array of `struct sock_filter`. */
export function seccompFilter(): Uint8Array {
  const here = architectures[arch()];
  if (here === undefined) throw new Error(`There is no seccomp filter for ${arch()}`);
  const program: [code: number, ifTrue: number, ifFalse: number, value: number][] = [
    [load, 0, 0, field.architecture],
    [jumpIfEqual, 1, 0, here.audit],
    [end, 0, 0, kill],
    [load, 0, 0, field.number],
  ];
  const check = (code: number, value: number, answer: number): void => {
    program.push([code, 0, 1, value], [end, 0, 0, answer]);
  };
  check(jumpIfAtLeast, x32Bit, fail(ENOSYS));
  check(jumpIfEqual, clone3, fail(ENOSYS));
  for (const numbers of Object.values(refused)) check(jumpIfEqual, numbers[here.column], fail(EPERM));
  program.push([jumpIfEqual, 0, 3, here.clone], [load, 0, 0, field.firstArgument]);
  check(jumpIfAnySet, namespaceFlags, fail(EPERM));
  program.push([end, 0, 0, allow]);
  const bytes = Buffer.alloc(program.length * 8);
  for (const [at, [code, ifTrue, ifFalse, value]] of program.entries()) {
    bytes.writeUInt16LE(code, at * 8);
    bytes.writeUInt8(ifTrue, at * 8 + 2);
    bytes.writeUInt8(ifFalse, at * 8 + 3);
    bytes.writeUInt32LE(value >>> 0, at * 8 + 4);
  }
  return bytes;
}
