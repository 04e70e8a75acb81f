import { afterEach, expect, test, vi } from "vitest";
import { isDriverSkipped, isRequired, missingOf, probeAll } from "../../tools/setup/requirements.mjs";

afterEach(() => {
  vi.unstubAllEnvs();
});

const requirement = (name: string, more: { driver?: string; isForTests?: boolean } = {}) => ({
  requirement: { name, packages: [name], why: "", without: "", probe: async () => ({ reason: "" }), ...more },
  reason: `${name} is missing`,
});

test("requirements of tests are only probed for tests", async () => {
  const names = async (forTests: boolean) => (await probeAll({ forTests })).map((probe) => probe.requirement.name);
  const always = await names(false);
  const more = (await names(true)).filter((name) => !always.includes(name));
  expect(more).toEqual(["zsh", "fish", "pip3", "pytest", "chromium", "dockerd", "podman", "runc", "catatonit"]);
});

test("missing requirements are installed, and only missing required ones stop set-up", () => {
  const probes = [
    requirement("cc"),
    requirement("zsh", { isForTests: true }),
    { requirement: requirement("ps").requirement, found: "ps 4" },
  ];
  const { required, forTests } = missingOf(probes);
  expect(required.map(({ name }) => name)).toEqual(["cc"]);
  expect(forTests.map(({ name }) => name)).toEqual(["zsh"]);
  expect(forTests.some((each) => isRequired(each))).toBe(false);
});

test.for([
  ["gvisor", true],
  ["local, gvisor", true],
  ["", false],
  ["gvisors", false],
] as const)("with ATOLL_SKIP %j the driver gvisor is skipped: %s", ([value, isSkipped]) => {
  vi.stubEnv("ATOLL_SKIP", value);
  expect(isDriverSkipped("gvisor")).toBe(isSkipped);
  const { required } = missingOf([requirement("runsc", { driver: "gvisor" })]);
  expect(required).toHaveLength(isSkipped ? 0 : 1);
});
