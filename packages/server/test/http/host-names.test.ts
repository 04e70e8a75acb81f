import { describe, expect, test } from "vitest";
import { HostNames, type HostNamesOptions } from "../../src/http/host-names.ts";

const sandbox = "a".repeat(20);

function isOurs(host: string | undefined, options: Partial<HostNamesOptions> = {}): boolean {
  const given = { host: "127.0.0.1", portDomains: [], hostNames: [], address: () => "127.0.0.1", ...options };
  return new HostNames(given).isOurs({ headers: { host } });
}

describe("a server that listens for its machine only", () => {
  test.for([
    "localhost",
    "localhost:4600",
    "LocalHost.",
    "127.0.0.1:80",
    "127.8.8.8",
    "[::1]:4600",
    "[::1]",
    "10.0.0.7:1",
  ])("accepts %s", (host) => {
    expect(isOurs(host)).toBe(true);
    expect(isOurs(host, { host: "::1", address: () => "::1" })).toBe(true);
  });

  test.for([
    "evil.example",
    "evil.example:4600",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.localhost",
    "127.0.0.1@evil.example",
    "[evil.example]",
    "a b",
    ":4600",
    "::1",
    "localhost:4600:1",
    "localhost:99999999",
    `80-${sandbox}.ports.example`,
  ])("refuses %s", (host) => {
    expect(isOurs(host)).toBe(false);
    expect(isOurs(host, { host: "localhost", address: () => "::1" })).toBe(false);
  });

  test("accepts the names that are configured, and the names of ports in port domains", () => {
    const given = {
      host: "atoll.test",
      publicUrl: "https://Atoll.example:8443",
      hostNames: ["Other.example"],
      portDomains: ["ports.example"],
    };
    for (const host of ["atoll.test:1", "atoll.example", "other.example:1", `80-${sandbox}.ports.example:1`]) {
      expect(isOurs(host, given)).toBe(true);
    }
    for (const host of ["ports.example", "x.ports.example", `80-${sandbox}.other.example`]) {
      expect(isOurs(host, given)).toBe(false);
    }
  });

  test("accepts a request without a name, which browsers do not send", () => {
    expect([isOurs(undefined), isOurs("")]).toEqual([true, true]);
  });
});

test("a server for other machines checks names only if some are configured", () => {
  const open = { host: "0.0.0.0", address: () => "0.0.0.0" };
  expect(isOurs("any.example", open)).toBe(true);
  expect(isOurs("any.example", { ...open, hostNames: ["atoll.example"] })).toBe(false);
  expect(isOurs("atoll.example", { ...open, hostNames: ["atoll.example"] })).toBe(true);
});
