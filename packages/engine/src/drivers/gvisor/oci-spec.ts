import type { SandboxLimits } from "@atoll/protocol";
import type { ImageNeeds } from "../driver.ts";

/**
 * What root inside may do; the default set of other container engines. gVisor's kernel checks these capabilities, never
 * the host's.
 */
const rootCapabilities = [
  "CAP_AUDIT_WRITE",
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_MKNOD",
  "CAP_NET_BIND_SERVICE",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
  "CAP_SYS_PTRACE",
];

/**
 * Only the guest has these, to set the host name after a fork and the limits of other processes. It removes them from
 * every process that it starts.
 */
const guestCapabilities = ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"];

/** The path of the guest inside, from the guest's layer. */
export const guestInside = "/.atoll/guest";

export interface OciSpecOptions {
  rootfs: string;
  hostname: string;
  limits: SandboxLimits;
  needs: ImageNeeds;
  /** The features by the names that runsc gives them. */
  shownFeatures?: readonly string[] | undefined;
}

/** These annotations say which guest the container has, and how its system calls are intercepted. */
export const guestAnnotation = "atoll.guest";
export const platformAnnotation = "atoll.platform";

/** With this annotation runsc shows only the given features of the processor. */
const featuresAnnotation = "dev.gvisor.internal.cpufeatures";

export function ociSpec({ rootfs, hostname, limits, needs, shownFeatures }: OciSpecOptions): object {
  const capabilities = [...rootCapabilities, ...guestCapabilities];
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid: 0, gid: 0 },
      args: [guestInside, "init"],
      env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
      cwd: "/",
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      rlimits: [{ type: "RLIMIT_NOFILE", soft: 16_384, hard: 16_384 }],
      noNewPrivileges: false,
    },
    root: { path: rootfs, readonly: false },
    hostname,
    annotations: {
      [guestAnnotation]: needs.guest,
      [platformAnnotation]: needs.platform,
      ...(shownFeatures === undefined ? {} : { [featuresAnnotation]: shownFeatures.join(",") }),
    },
    mounts: [
      { destination: "/proc", type: "proc", source: "proc" },
      { destination: "/dev", type: "tmpfs", source: "tmpfs" },
      { destination: "/dev/shm", type: "tmpfs", source: "tmpfs", options: [`size=${limits.tmpBytes}`, "mode=1777"] },
      { destination: "/sys", type: "sysfs", source: "sysfs", options: ["ro"] },
      // runsc would mount a tmpfs without a limit on an empty /tmp.
      { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: [`size=${limits.tmpBytes}`, "mode=1777"] },
    ],
    linux: {
      namespaces: ["pid", "network", "ipc", "uts", "mount"].map((type) => ({ type })),
    },
  };
}
