import { networkInterfaces } from "node:os";
import { EgressPolicy, type EgressPolicyInput } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { parseAddress } from "../../src/egress/address.ts";
import { compilePolicy, ruleBeyond, type CompiledPolicy } from "../../src/egress/compile-policy.ts";

const compile = (policy: EgressPolicyInput): CompiledPolicy => compilePolicy(EgressPolicy.parse(policy));
const allows = (policy: EgressPolicyInput, host: string, port = 443): boolean =>
  compile(policy).decide(host, port).allowed;

test("nothing is allowed by default", () => {
  for (const host of ["example.com", "1.1.1.1", "2606:4700::1111", "localhost"]) expect(allows({}, host)).toBe(false);
});

describe("names", () => {
  test.for([
    ["example.com", "example.com", true],
    ["example.com", "EXAMPLE.Com", true],
    ["example.com", "example.com.", true],
    ["Example.COM.", "example.com", true],
    ["example.com", "www.example.com", false],
    ["example.com", "example.com.evil.test", false],
    ["example.com", "notexample.com", false],
    ["example.com", "example.com..", false],
    ["*.example.com", "www.example.com", true],
    ["*.example.com", "a.b.c.example.com", true],
    ["*.example.com", "example.com", false],
    ["*.example.com", ".example.com", false],
    ["*.example.com", "evilexample.com", false],
    ["bücher.de", "xn--bcher-kva.de", true],
    ["xn--bcher-kva.de", "BÜCHER.de", true],
    ["example.com", "example。com", true],
    ["example.com", "ｅxample.com", true],
    ["*", "anything.test", true],
    ["*", "1.1.1.1", true],
  ] as const)("%s and %s: %s", ([rule, host, allowed]) => {
    expect(allows({ allow: [rule] }, host)).toBe(allowed);
  });

  test.for([
    "good.test@evil.test",
    "evil.test#good.test",
    "good.test/..",
    "good.test\\@evil.test",
    "good%2etest",
    "good.test:80",
    "good.test\0.evil.test",
    "good.test\n",
    " good.test",
    "good.test?",
    "",
    ".",
    "[good.test]",
    "a".repeat(64),
    `${"a.".repeat(130)}test`,
    "fe80::1%eth0",
  ])("%j is not a host, whatever the rules say", (host) => {
    expect(compile({ allow: ["*", "good.test", "*.test"] }).decide(host, 443)).toEqual({
      allowed: false,
      because: "it is neither a name nor an address",
    });
  });
});

describe("addresses", () => {
  test.for([
    ["1.1.1.1", "1.1.1.1", true],
    ["1.1.1.1", "1.1.1.2", false],
    ["1.1.1.0/24", "1.1.1.255", true],
    ["1.1.1.0/24", "1.1.2.0", false],
    ["1.1.1.1", "::ffff:1.1.1.1", true],
    ["1.1.1.1", "[::ffff:101:101]", true],
    ["1.1.1.1", "16843009", true],
    ["1.1.1.1", "0x1010101", true],
    ["1.1.1.1", "0101.1.1", false],
    ["1.1.1.1", "01.1.1.01", true],
    ["2606:4700::/32", "2606:4700:0:1::1", true],
    ["2606:4700::/32", "2606:4701::1", false],
    ["2606:4700::1111", "[2606:4700:0:0:0:0:0:1111]", true],
    ["::/0", "2606:4700::1", true],
    ["::/0", "1.1.1.1", false],
    ["0.0.0.0/0", "1.1.1.1", true],
    ["1.1.1.1", "one.one.one.one", false],
  ] as const)("%s and %s: %s", ([rule, host, allowed]) => {
    expect(allows({ allow: [rule] }, host)).toBe(allowed);
  });

  const special = [
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "2130706433",
    "017700000001",
    "0",
    "0.0.0.0",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::1",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "198.18.0.1",
    "192.0.0.192",
    "fe80::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
  ];
  test.for(special)("%s is not on the internet: neither * nor a whole family of addresses allows it", (host) => {
    expect(compile({ allow: ["*", "0.0.0.0/0", "::/0"] }).decide(host, 80)).toMatchObject({
      allowed: false,
      because: expect.stringContaining("no rule names it"),
    });
  });

  test("a special address that is named, alone or by a range that is all set apart, is allowed", () => {
    expect(allows({ allow: ["127.0.0.1:8080"] }, "127.1", 8080)).toBe(true);
    expect(allows({ allow: ["127.0.0.1:8080"] }, "127.0.0.1", 8081)).toBe(false);
    expect(allows({ allow: ["10.0.0.0/8"] }, "10.9.8.7")).toBe(true);
    expect(allows({ allow: ["[fd00::/8]:443"] }, "fd12::1")).toBe(true);
    expect(allows({ allow: ["192.168.0.0/15"] }, "192.168.0.1")).toBe(false);
  });

  test("a neighbour of a special range is ordinary", () => {
    for (const host of ["172.32.0.1", "100.128.0.1", "169.253.0.1", "11.0.0.1", "64:ff9b::808:808"]) {
      expect(allows({ allow: ["*"] }, host)).toBe(true);
    }
  });
});

describe("an address that an allowed name resolves to", () => {
  const judge = (policy: EgressPolicyInput, address: string): boolean => {
    const parsed = parseAddress(address);
    if (parsed === undefined) throw new Error(address);
    return compile(policy).decideResolved(parsed, 443).allowed;
  };

  test("is allowed on the internet, and elsewhere only if it is named as well", () => {
    expect(judge({ allow: ["db.internal"] }, "93.184.215.14")).toBe(true);
    expect(judge({ allow: ["db.internal"] }, "10.0.0.5")).toBe(false);
    expect(judge({ allow: ["db.internal", "*"] }, "10.0.0.5")).toBe(false);
    expect(judge({ allow: ["db.internal", "10.0.0.0/24"] }, "10.0.0.5")).toBe(true);
    expect(judge({ allow: ["db.internal", "10.0.0.0/24:80"] }, "10.0.0.5")).toBe(false);
  });

  test("is refused if it is denied", () => {
    expect(judge({ allow: ["*"], deny: ["93.184.0.0/16"] }, "93.184.215.14")).toBe(false);
  });
});

describe("ports", () => {
  test.for([
    ["example.com:443", "example.com", 443, true],
    ["example.com:443", "example.com", 80, false],
    ["example.com:8000-8999", "example.com", 8999, true],
    ["example.com:8000-8999", "example.com", 9000, false],
    ["*:443", "example.com", 443, true],
    ["*:443", "example.com", 22, false],
    ["*.example.com:22", "git.example.com", 22, true],
    ["1.1.1.0/24:53", "1.1.1.1", 53, true],
    ["[2606:4700::1]:443", "2606:4700::1", 443, true],
    ["[2606:4700::1]:443", "2606:4700::1", 80, false],
    ["[2606:4700::/32]:1-100", "2606:4700::1", 80, true],
    ["2606:4700::1", "2606:4700::1", 80, true],
  ] as const)("%s and %s port %i: %s", ([rule, host, port, allowed]) => {
    expect(allows({ allow: [rule] }, host, port)).toBe(allowed);
  });
});

test("a denial wins over any permission, and the reason names its rule", () => {
  const policy = { allow: ["*.example.com", "evil.example.com"], deny: ["evil.example.com", "*:25"] };
  expect(allows(policy, "good.example.com")).toBe(true);
  expect(compile(policy).decide("evil.example.com", 443)).toEqual({
    allowed: false,
    because: "the rule evil.example.com denies it",
  });
  expect(allows(policy, "good.example.com", 25)).toBe(false);
});

describe("a malformed rule", () => {
  test.for([
    "https://example.com",
    "example.com/path",
    "user@example.com",
    "example.com:0",
    "example.com:65536",
    "example.com:90-80",
    "example.com:http",
    "example.com:",
    "ex*mple.com",
    "*example.com",
    "*.*.com",
    "**",
    "*.",
    "127.1",
    "0x7f000001",
    "*.1.2.3.4",
    "10.0.0.1/8",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0/8",
    "2606:4700::1/32",
    "::ffff:10.0.0.0/104",
    "fe80::1%eth0",
    "[example.com]:80",
    "[::1",
    "1.2.3.4.5",
    "exa mple.com",
    "-a.com",
    "a..b",
  ])("%j is refused by place and name", (rule) => {
    expect(() => compile({ allow: ["fine.test"], deny: ["fine.test", rule] })).toThrowError(
      expect.objectContaining({
        code: "invalid_argument",
        message: expect.stringContaining(`deny[1] ${JSON.stringify(rule)}`),
        details: { issues: [expect.objectContaining({ path: ["deny", 1] })] },
      }),
    );
  });

  test("a range that begins elsewhere is refused with the right beginning", () => {
    expect(() => compile({ allow: ["10.1.2.3/8"] })).toThrow("write 10.0.0.0/8");
  });
});

describe("a rule is within a ceiling", () => {
  test.for([
    ["*", "example.com", true],
    ["*", "*", true],
    ["*", "93.184.0.0/16", true],
    ["*", "0.0.0.0/0", true],
    ["*", "127.0.0.1", false],
    ["*", "127.0.0.0/8", false],
    ["*", "10.0.0.0/8", false],
    ["*", "172.16.0.0/12", false],
    ["*", "192.168.1.1", false],
    ["*", "169.254.169.254", false],
    ["*", "169.254.0.0/16", false],
    ["*", "100.64.0.0/10", false],
    ["*", "168.63.129.16", false],
    ["*", "0.0.0.0", false],
    ["*", "0.0.0.0/8", false],
    ["*", "224.0.0.0/4", false],
    ["*", "::1", false],
    ["*", "::", false],
    ["*", "fe80::/10", false],
    ["*", "fc00::/7", false],
    ["*", "fd00:ec2::254", false],
    ["*", "::ffff:10.0.0.1", false],
    ["*", "64:ff9b::a00:1", false],
    ["*", "2002:7f00:1::1", false],
    ["*", "ff02::1", false],
    ["0.0.0.0/0", "10.0.0.1", false],
    ["10.0.0.0/8", "10.1.0.0/16", true],
    ["10.0.0.0/8", "10.0.0.0/7", false],
    ["10.0.0.0/8", "::ffff:10.0.0.1", true],
    ["10.0.0.0/8", "db.internal", false],
    ["10.1.0.0/16:5432", "10.1.2.3:5432", true],
    ["10.1.0.0/16:5432", "10.1.2.3", false],
    ["169.254.0.0/16", "169.254.169.254", false],
    ["169.254.169.254", "169.254.169.254", true],
    ["fc00::/7", "fd00:ec2::254", false],
    ["*:443", "example.com:443", true],
    ["*:443", "*", false],
    ["*.example.com", "a.b.example.com", true],
    ["*.example.com", "*.b.example.com", true],
    ["*.example.com", "*.example.com", true],
    ["*.example.com", "example.com", false],
    ["*.b.example.com", "*.example.com", false],
    ["example.com", "*", false],
    ["example.com", "93.184.215.14", false],
  ] as const)("of %s: %s is %s", ([ceiling, rule, isWithin]) => {
    const policy = { allow: ["b.test", rule], deny: [] };
    expect(ruleBeyond(policy, { allow: ["b.test", ceiling], deny: [] })).toBe(isWithin ? undefined : rule);
  });

  test("a rule that is denied there as a whole is not within it", () => {
    const ceiling = { allow: ["*"], deny: ["*:25", "*.evil.test"] };
    expect(ruleBeyond({ allow: ["example.com:25"], deny: [] }, ceiling)).toBe("example.com:25");
    expect(ruleBeyond({ allow: ["a.evil.test"], deny: [] }, ceiling)).toBe("a.evil.test");
    expect(ruleBeyond({ allow: ["*"], deny: [] }, ceiling)).toBeUndefined();
  });
});

test("metadata addresses of clouds and the machine's own addresses need a rule of their own", () => {
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const outer = own.find(({ internal, family }) => !internal && family === "IPv4")?.address;
  const alone = ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", ...(outer === undefined ? [] : [outer])];
  for (const address of alone) {
    const [range] = [
      "169.254.0.0/16",
      "100.64.0.0/10",
      "fd00::/8",
      "10.0.0.0/8",
      "192.168.0.0/16",
      "172.16.0.0/12",
    ].filter((candidate) => allows({ allow: [candidate] }, address));
    expect(range).toBeUndefined();
    expect(allows({ allow: [address] }, address)).toBe(true);
  }
});
