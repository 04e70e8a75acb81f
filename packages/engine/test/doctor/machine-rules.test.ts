import { describe, expect, test } from "vitest";
import {
  judgeCapabilities,
  judgeDisk,
  judgeKernel,
  judgeNode,
  judgeOpenFiles,
  judgeOverlay,
  judgePipes,
} from "../../src/doctor/machine-rules.ts";

const GiB = 1024 ** 3;
const disk = { path: "/data", type: 0xef53, freeBytes: 50 * GiB, freeInodes: 1_000_000, totalInodes: 2_000_000 };
const capabilities = (mask: string): string =>
  `Name:\tnode\nCapPrm:\t${mask}\nCapEff:\t${mask}\nCapBnd:\t000001ffffffffff\n`;

describe("the machine is judged", () => {
  test.for([
    { what: "a new kernel", finding: judgeKernel("linux", "6.18.44-fc"), status: "ok" },
    { what: "the oldest kernel", finding: judgeKernel("linux", "5.9.0-1-amd64"), status: "ok" },
    { what: "a kernel with two digits", finding: judgeKernel("linux", "5.10.0-33-cloud"), status: "ok" },
    { what: "a kernel before close_range", finding: judgeKernel("linux", "5.8.18"), status: "missing" },
    { what: "a kernel before openat2", finding: judgeKernel("linux", "4.19.0-27-amd64"), status: "missing" },
    { what: "another system", finding: judgeKernel("darwin", "23.1.0"), status: "missing" },
    { what: "Node 20.19", finding: judgeNode("20.19.0"), status: "ok" },
    { what: "Node 24", finding: judgeNode("24.1.0"), status: "ok" },
    { what: "Node 20.9", finding: judgeNode("20.9.0"), status: "missing" },
    { what: "Node 18", finding: judgeNode("18.20.0"), status: "missing" },
    { what: "root", finding: judgeCapabilities(capabilities("000001ffffffffff")), status: "ok" },
    { what: "a user", finding: judgeCapabilities(capabilities("0000000000000000")), status: "missing" },
    { what: "root in a container", finding: judgeCapabilities(capabilities("00000000a80425fb")), status: "missing" },
    { what: "a status without capabilities", finding: judgeCapabilities("Name: x\n"), status: "missing" },
    { what: "overlayfs", finding: judgeOverlay("nodev\tsysfs\nnodev\toverlay\n\text4\n"), status: "ok" },
    { what: "no overlayfs", finding: judgeOverlay("nodev\tsysfs\n\text4\n"), status: "missing" },
    { what: "large FIFOs", finding: judgePipes("1048576\n"), status: "ok" },
    { what: "small FIFOs", finding: judgePipes("65536\n"), status: "warning" },
    {
      what: "many files",
      finding: judgeOpenFiles("Max open files            1048576  1048576  files\n"),
      status: "ok",
    },
    {
      what: "files without limit",
      finding: judgeOpenFiles("Max open files  unlimited  unlimited  files\n"),
      status: "ok",
    },
    {
      what: "few files",
      finding: judgeOpenFiles("Max open files            1024   1048576  files\n"),
      status: "warning",
    },
    { what: "a roomy disk", finding: judgeDisk(disk), status: "ok" },
    { what: "a full disk", finding: judgeDisk({ ...disk, freeBytes: GiB }), status: "warning" },
    { what: "a disk without inodes", finding: judgeDisk({ ...disk, freeInodes: 5 }), status: "warning" },
    {
      what: "a disk that does not count inodes",
      finding: judgeDisk({ ...disk, freeInodes: 0, totalInodes: 0 }),
      status: "ok",
    },
    { what: "a container's own filesystem", finding: judgeDisk({ ...disk, type: 0x794c7630 }), status: "missing" },
    { what: "a network disk", finding: judgeDisk({ ...disk, type: 0x6969 }), status: "missing" },
  ])("$what: $status", ({ finding, status }) => {
    expect(finding.status).toBe(status);
    const hasAdvice = finding.needs !== undefined && finding.fix !== undefined;
    expect(hasAdvice).toBe(status !== "ok");
  });

  test("the capabilities that are lacking are named", () => {
    expect(judgeCapabilities(capabilities("00000000a80425fb")).found).toBe(
      "without CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN",
    );
    expect(judgeCapabilities(capabilities("0000000000000000")).found).toBe("none");
  });
});
