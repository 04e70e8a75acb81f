import type { CompatFix } from "../compat-fix.ts";
import { fromText } from "./from-text.ts";

interface NodeRow {
  id: string;
  why: string;
  what: string;
  pattern: RegExp;
  env: Readonly<Record<string, string>>;
  risk?: CompatFix["risk"];
}

const rows: readonly NodeRow[] = [
  {
    id: "openssl-legacy",
    why: "Node 17 and newer have OpenSSL 3, which refuses the digests that old bundlers use.",
    what: "lets OpenSSL use its legacy provider",
    pattern: /ERR_OSSL_EVP_UNSUPPORTED|digital envelope routines::unsupported/,
    env: { NODE_OPTIONS: "--openssl-legacy-provider" },
  },
  {
    id: "unhandled-rejections",
    why: "Node 15 and newer end at a promise that fails and that no code handles; older ones warned.",
    what: "warns about such promises and goes on",
    pattern: /triggerUncaughtException\([\s\S]{0,400}?promise/,
    env: { NODE_OPTIONS: "--unhandled-rejections=warn" },
    risk: "changes-behaviour",
  },
  {
    id: "ipv4-first",
    why: "Node 17 and newer take the first address of localhost, ::1, where a server listens on 127.0.0.1 only.",
    what: "takes IPv4 addresses first",
    pattern: /connect ECONNREFUSED ::1/,
    env: { NODE_OPTIONS: "--dns-result-order=ipv4first" },
    risk: "low",
  },
  {
    id: "node-heap",
    why: "The heap of Node is too small for the tests.",
    what: "gives Node a heap of 1.5 GiB",
    pattern: /JavaScript heap out of memory/,
    env: { NODE_OPTIONS: "--max-old-space-size=1536" },
    risk: "none",
  },
];

export const nodeFixes: readonly CompatFix[] = rows.map(({ id, why, what, pattern, env, risk = "low" }) => ({
  id,
  layer: "env",
  languages: ["node"],
  risk,
  why,
  what,
  ...fromText(pattern),
  plan: () => ({ env }),
}));
