import type { CompatFix } from "../compat-fix.ts";
import { fromText } from "./from-text.ts";

/** Tests that were written for a machine with a network. A sandbox has its loopback interface. */
export const networkFixes: readonly CompatFix[] = [
  {
    id: "local-httpbin",
    layer: "packages",
    languages: ["python"],
    risk: "low",
    why: "The tests send requests to httpbin.org, and tests have no network.",
    what: "serves httpbin in the sandbox, and names it in HTTPBIN_URL",
    ...fromText(/host='httpbin\.org'[^\n]*|[^\n]*(?:resolve|ProxyError|NewConnection)[^\n]*httpbin\.org[^\n]*/),
    plan: () => ({ packages: { add: ["httpbin"] }, shim: ["local-httpbin"] }),
  },
  {
    id: "connect-timeouts",
    layer: "shim",
    languages: ["python"],
    risk: "low",
    why: "The tests expect that a connection to an address that does not answer times out; here it fails at once.",
    what: "lets connections to networks that cannot be reached fail when their timeout is over",
    detect: ({ text, failing, missing }) => {
      const unreachable = /[^\n]*Network is unreachable[^\n]*/.exec(text)?.[0].trim().slice(0, 200);
      return [...failing, ...missing].some((id) => /timeout/i.test(id)) ? unreachable : undefined;
    },
    plan: () => ({ shim: ["connect-timeouts"] }),
  },
];
