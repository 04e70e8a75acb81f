import { SandboxLimits } from "@atoll/protocol";
import { expect, test } from "vitest";
import { assertCanLimitFeatures } from "../../src/checkpoints/common-features.ts";
import { ociSpec } from "../../src/drivers/gvisor/oci-spec.ts";

const runsc = { path: "/usr/bin/runsc", version: "0.0~20240729.0", subcommands: new Set(["run", "restore"]) };
const newer = { ...runsc, subcommands: new Set(["run", "restore", "cpu-features"]) };
const readCpuFeatures = async (): Promise<string[]> => ["avx", "sse", "sse2"];

test("a runsc that can hide features is enough on a processor that has those that stay", async () => {
  await expect(assertCanLimitFeatures(["sse", "sse2"], { runsc: newer, readCpuFeatures })).resolves.toBeUndefined();
});

test("one that cannot is refused, with what it would need", async () => {
  await expect(assertCanLimitFeatures(["sse"], { runsc, readCpuFeatures })).rejects.toMatchObject({
    code: "unsupported",
    suggestion: expect.stringContaining("cpu-features"),
    details: { runsc: "0.0~20240729.0", hidden: ["avx", "sse2"] },
  });
});

test("any runsc will do where there is nothing to hide", async () => {
  const all = ["sse2", "sse", "avx"];
  await expect(assertCanLimitFeatures(all, { runsc, readCpuFeatures })).resolves.toBeUndefined();
});

test("a processor that lacks one of them is refused by name", async () => {
  await expect(assertCanLimitFeatures(["sse", "amx"], { runsc: newer, readCpuFeatures })).rejects.toMatchObject({
    code: "unsupported",
    details: { lacking: ["amx"] },
  });
});

test("runsc is told in the specification, and only then", () => {
  const options = {
    rootfs: "/r",
    hostname: "h",
    limits: SandboxLimits.parse({}),
    needs: { guest: "g", platform: "systrap" },
  };
  expect(ociSpec(options)).toMatchObject({ annotations: { "atoll.guest": "g", "atoll.platform": "systrap" } });
  expect(JSON.stringify(ociSpec(options))).not.toContain("cpufeatures");
  expect(ociSpec({ ...options, cpuFeatures: ["sse", "sse2"] })).toMatchObject({
    annotations: { "dev.gvisor.internal.cpufeatures": "sse,sse2" },
  });
});
