import { readFile } from "node:fs/promises";

/**
 * Returns the flags that the kernel reports for this machine's processors, in alphabetical order; more than their
 * features (`processorFeatures`).
 */
export async function readCpuFlags(): Promise<string[]> {
  return parseCpuFlags(await readFile("/proc/cpuinfo", "utf8"));
}

/**
 * Where the processors differ, only the flags that all of them have count, because a process may run on any of them.
 */
export function parseCpuFlags(cpuinfo: string): string[] {
  const processors = [...cpuinfo.matchAll(/^(?:flags|Features)[ \t]*:(.*)$/gm)].map(
    ([, words = ""]) => new Set(words.split(/\s+/).filter((word) => word !== "")),
  );
  const [first = new Set<string>(), ...others] = processors;
  return [...first].filter((flag) => others.every((flags) => flags.has(flag))).toSorted();
}

/**
 * Returns what programs can use of a processor. A memory image needs these features, and none of the flags that the
 * kernel adds about itself.
 */
export function processorFeatures(flags: readonly string[]): string[] {
  return flags.filter((flag) => !kernelFlags.has(flag));
}

/**
 * The kernel reports this flag for a processor that can trap programs which ask it for its features, so that the kernel
 * can give another answer.
 */
export const trapsCpuid = "cpuid_fault";

/**
 * Flags that Linux makes up or uses only itself: how it counts time, which of its own mitigations are on, what only it
 * and hypervisors use. On the same processor they change with the release, the command line and the configuration. The
 * list comes from `arch/x86/include/asm/cpufeatures.h` of 6.1 and 6.12: the flags of Linux itself that are shown,
 * except those that stand for bits of the processor.
 */
const kernelFlags: ReadonlySet<string> = new Set(
  `
    acc_power amd_dcm amd_lbr_pmc_freeze amd_lbr_v2 aperfmperf arch_perfmon art bts cat_l2 cat_l3 cdp_l2 cdp_l3
    constant_tsc cpb cpuid cpuid_fault cqm_llc cqm_mbm_local cqm_mbm_total cqm_occup_llc epb ept ept_ad extd_apicid
    flexpriority hw_pstate ibpb_exit_to_user ibrs_enhanced intel_ppin invpcid_single mba nonstop_tsc nonstop_tsc_s3
    nopl pebs perfmon_v2 proc_feedback pti rapl rep_good split_lock_detect tdx_guest tdx_host_platform tpr_shadow
    tsc_known_freq tsc_reliable up user_shstk vmmcall vpid xtopology
  `
    .trim()
    .split(/\s+/),
);
