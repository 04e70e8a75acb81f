import type { TemplateName } from "@atoll/protocol";

/** A directory of the sandbox and the read-only host directories that make it up, the topmost first. */
interface TemplateTree {
  /** The absolute path in the sandbox. */
  at: string;
  lower: string[];
}

/** A root filesystem to start from: the trees to mount, in this order. The first tree is the root. */
export interface Template {
  name: TemplateName;
  trees: TemplateTree[];
}
