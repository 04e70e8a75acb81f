import { hasErrno } from "@atoll/host";
import type { CgroupKernel } from "./cgroup-kernel.ts";

/**
 * What all groups together weigh. The kernel forgets it with their common directory, which comes and goes with them.
 */
export class TreeWeight {
  readonly #kernel: CgroupKernel;
  /** In the common directory. */
  readonly #file: string;
  #value: string | undefined;
  #isInForce = false;

  constructor(kernel: CgroupKernel, file: string) {
    this.#kernel = kernel;
    this.#file = file;
  }

  /** As the kernel wants it. */
  async set(value: string): Promise<void> {
    this.#value = value;
    await this.#write();
  }

  /** To be called when a group was made; `isNewTree`: and the common directory with it. */
  async uphold({ isNewTree }: { isNewTree: boolean }): Promise<void> {
    if (isNewTree || !this.#isInForce) await this.#write();
  }

  async #write(): Promise<void> {
    if (this.#value === undefined) return;
    try {
      await this.#kernel.write(this.#file, this.#value);
      this.#isInForce = true;
    } catch (error) {
      // There is no group yet, or another engine has just removed the last one.
      if (!hasErrno(error, "ENOENT")) throw error;
      this.#isInForce = false;
    }
  }
}
