import { expect, test } from "vitest";
import { parseLauncherCommand } from "../../bench/launcher-command.ts";

const run = "/data/sandboxes/a/run/b";
const options = ["--cgroup", "/cg/memory/b", "--cgroup", "/cg/cpu/b"];
const overlays = ["--overlay", `${run}/rootfs`, "lowerdir=/l", "--overlay", `${run}/rootfs/usr`, "lowerdir=/usr"];
const program = ["/usr/bin/runsc", "--root", `${run}/state`, "--network=none", "run", "--bundle", run, "b"];

test("the launcher's command line contains the settings of the launch", () => {
  const argv = ["/guest", "launch", "--dir", run, ...options, ...overlays, "--", ...program];
  expect(parseLauncherCommand(argv)).toEqual({
    runDir: run,
    cgroups: ["/cg/memory/b", "/cg/cpu/b"],
    overlays: [
      { at: "/", options: "lowerdir=/l" },
      { at: "/usr", options: "lowerdir=/usr" },
    ],
    runtime: ["/usr/bin/runsc", "--root", `${run}/state`, "--network=none"],
  });
});

test.for([
  [["/guest", "launch", "--dir", run]],
  [["/guest", "launch", "--", ...program]],
  [["/guest", "launch", "--dir", run, "--", "/bin/sleep", "1"]],
  [["/guest", "launch", "--dir", run, "--overlay", "/elsewhere", "x", "--", ...program]],
])("%j is refused", ([argv = []]) => {
  expect(() => parseLauncherCommand(argv)).toThrow(/^Cannot/);
});
