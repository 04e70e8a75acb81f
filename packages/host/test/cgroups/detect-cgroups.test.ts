import { describe, expect, test } from "vitest";
import { chooseCgroups } from "../../src/cgroups/detect-cgroups.ts";
import { FakeCgroupKernel } from "../../src/testing/fake-cgroup-kernel.ts";

const v1 = `tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /m cgroup rw,relatime,memory 0 0
cgroup /c cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /f cgroup rw,relatime,freezer 0 0
cgroup /s cgroup rw,relatime,name=systemd 0 0
`;
const v2 = "cgroup2 /u cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n";
const limits = { memoryBytes: 1, cpus: 1 };

const v1Kernel = (unified: string[] = []): FakeCgroupKernel => {
  const kernel = new FakeCgroupKernel(1, { "/m": ["memory"], "/c": ["cpu", "cpuacct"], "/f": ["freezer"], "/u": [] });
  kernel.setFile("/u/cgroup.controllers", `${unified.join(" ")}\n`);
  return kernel;
};

describe("the mount table decides", () => {
  test("v1, with what is mounted", async () => {
    const tree = await chooseCgroups(v1, v1Kernel());
    expect(tree?.version).toBe(1);
    expect((await tree?.create("ns/a", limits))?.directories).toEqual([
      "/m/atoll/ns/a",
      "/c/atoll/ns/a",
      "/f/atoll/ns/a/run",
    ]);
  });

  test("v1 when the unified mount has no controllers that we need", async () => {
    expect((await chooseCgroups(v2 + v1, v1Kernel(["hugetlb"])))?.version).toBe(1);
  });

  test("v2 when it has memory and cpu", async () => {
    const kernel = new FakeCgroupKernel(2, { "/u": ["cpu", "memory"] });
    const tree = await chooseCgroups(v2, kernel);
    expect(tree?.version).toBe(2);
    expect((await tree?.create("ns/a", limits))?.directories).toEqual(["/u/atoll/ns/a/run"]);
  });

  test.for([
    { what: "no cgroups", table: "tmpfs / tmpfs rw 0 0\n" },
    { what: "no memory controller", table: "cgroup /c cgroup rw,cpu 0 0\n" },
    { what: "no cpu controller", table: "cgroup /m cgroup rw,memory 0 0\n" },
    { what: "an empty unified mount", table: v2 },
  ])("$what: none", async ({ table }) => {
    expect(await chooseCgroups(table, v1Kernel())).toBeUndefined();
  });

  test("a path with a space in it is read as it is", async () => {
    const kernel = new FakeCgroupKernel(2, { "/my cgroups": ["cpu", "memory"] });
    const tree = await chooseCgroups("cgroup2 /my\\040cgroups cgroup2 rw 0 0\n", kernel);
    expect((await tree?.create("ns/a", limits))?.directories).toEqual(["/my cgroups/atoll/ns/a/run"]);
  });
});
