import { SandboxLimits } from "@atoll/protocol";
import { expect, test } from "vitest";
import { limitFeatures } from "../../src/checkpoints/common-features.ts";
import { ociSpec } from "../../src/drivers/gvisor/oci-spec.ts";

const runsc = { path: "/usr/bin/runsc", version: "0.0~20240729.0", subcommands: new Set(["run", "restore"]) };
const newer = { ...runsc, subcommands: new Set(["run", "restore", "cpu-features"]) };
const cpuFlags = ["avx", "constant_tsc", "cpuid_fault", "sse", "sse2"];
/** runsc also names features that the kernel does not show. */
const askRunsc = async (): Promise<string[]> => ["sse", "sse2", "osxsave", "avx"];

test("features that are not wanted are hidden, and no others", async () => {
  const shown = limitFeatures(["sse", "sse2"], { runsc: newer, cpuFlags, askRunsc });
  await expect(shown).resolves.toEqual(["sse", "sse2", "osxsave"]);
});

test("a runsc that cannot hide is refused, with what it would need", async () => {
  await expect(limitFeatures(["sse"], { runsc, cpuFlags, askRunsc })).rejects.toMatchObject({
    code: "unsupported",
    suggestion: expect.stringContaining("cpu-features"),
    details: { runsc: "0.0~20240729.0", hidden: ["avx", "sse2"] },
  });
});

test("a processor that cannot hide features is refused, however new runsc is", async () => {
  const open = cpuFlags.filter((flag) => flag !== "cpuid_fault");
  await expect(limitFeatures(["sse"], { runsc: newer, cpuFlags: open, askRunsc })).rejects.toMatchObject({
    code: "unsupported",
    message: expect.stringContaining("avx, sse2"),
    suggestion: expect.stringContaining("cpuid_fault"),
  });
});

test("a feature that runsc does not know cannot be hidden by it", async () => {
  const flags = [...cpuFlags, "zz_of_2050"];
  await expect(limitFeatures(["sse", "sse2"], { runsc: newer, cpuFlags: flags, askRunsc })).rejects.toMatchObject({
    code: "unsupported",
    details: { hidden: ["avx", "zz_of_2050"], unknown: ["zz_of_2050"] },
  });
});

test("any runsc and any processor will do where there is nothing to hide", async () => {
  const all = ["sse2", "sse", "avx"];
  const open = [...all, "nopl"];
  await expect(limitFeatures(all, { runsc, cpuFlags: open, askRunsc })).resolves.toBeUndefined();
  await expect(limitFeatures(all, { runsc: newer, cpuFlags: open, askRunsc })).resolves.toEqual(await askRunsc());
});

test("a missing feature of the processor is refused by name, a missing flag of the kernel is not", async () => {
  const wanted = ["sse", "amx", "tsc_known_freq"];
  await expect(limitFeatures(wanted, { runsc: newer, cpuFlags, askRunsc })).rejects.toMatchObject({
    code: "unsupported",
    details: { lacking: ["amx"] },
  });
});

test("the specification names the features only if some are hidden", () => {
  const options = {
    rootfs: "/r",
    hostname: "h",
    limits: SandboxLimits.parse({}),
    needs: { guest: "g", platform: "systrap" },
  };
  expect(ociSpec(options)).toMatchObject({ annotations: { "atoll.guest": "g", "atoll.platform": "systrap" } });
  expect(JSON.stringify(ociSpec(options))).not.toContain("cpufeatures");
  expect(ociSpec({ ...options, shownFeatures: ["sse", "sse2"] })).toMatchObject({
    annotations: { "dev.gvisor.internal.cpufeatures": "sse,sse2" },
  });
});
