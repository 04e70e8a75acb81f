import { expect, test } from "vitest";
import { parseCpuFlags, processorFeatures, readCpuFlags } from "../../src/checkpoints/cpu-features.ts";

test("the flags of a processor are in alphabetical order", () => {
  expect(parseCpuFlags("processor\t: 0\nflags\t\t: fpu sse2 avx\nbugs\t\t: spectre\n")).toEqual(["avx", "fpu", "sse2"]);
});

test("only flags that all processors have count", () => {
  const cpuinfo = "flags\t\t: fpu avx avx512f\n\nprocessor\t: 1\nflags\t\t: fpu avx\n";
  expect(parseCpuFlags(cpuinfo)).toEqual(["avx", "fpu"]);
});

test("other architectures have the flags under another name", () => {
  expect(parseCpuFlags("Features\t: fp asimd\n")).toEqual(["asimd", "fp"]);
});

test("a kernel that lists no flags has none", () => {
  expect(parseCpuFlags("")).toEqual([]);
});

test("this machine has some, of its own and of its kernel", async () => {
  const flags = await readCpuFlags();
  const features = processorFeatures(flags);
  expect(features.length).toBeGreaterThan(0);
  expect(features.length).toBeLessThan(flags.length);
});

test("flags of the kernel itself are no features of the processor", () => {
  const ofIntel = ["avx2", "constant_tsc", "cpuid_fault", "ept", "ibrs", "ibrs_enhanced", "invpcid", "invpcid_single"];
  expect(processorFeatures([...ofIntel, "pti", "ssbd", "zz_new"])).toEqual([
    "avx2",
    "ibrs",
    "invpcid",
    "ssbd",
    "zz_new",
  ]);
});
