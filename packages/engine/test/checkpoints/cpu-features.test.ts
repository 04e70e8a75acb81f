import { expect, test } from "vitest";
import { parseCpuFeatures, readCpuFeatures } from "../../src/checkpoints/cpu-features.ts";

test("the features of a processor are told in alphabetical order", () => {
  expect(parseCpuFeatures("processor\t: 0\nflags\t\t: fpu sse2 avx\nbugs\t\t: spectre\n")).toEqual([
    "avx",
    "fpu",
    "sse2",
  ]);
});

test("of processors that differ only what all can do counts", () => {
  const cpuinfo = "flags\t\t: fpu avx avx512f\n\nprocessor\t: 1\nflags\t\t: fpu avx\n";
  expect(parseCpuFeatures(cpuinfo)).toEqual(["avx", "fpu"]);
});

test("other architectures tell their features under another name", () => {
  expect(parseCpuFeatures("Features\t: fp asimd\n")).toEqual(["asimd", "fp"]);
});

test("a kernel that tells nothing has no features", () => {
  expect(parseCpuFeatures("")).toEqual([]);
});

test("this machine has some", async () => {
  expect((await readCpuFeatures()).length).toBeGreaterThan(0);
});
