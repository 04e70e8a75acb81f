import { hasErrno } from "../support/errno.ts";
import type { CgroupKernel } from "./cgroup-kernel.ts";

/**
 * The weight of all groups together. The kernel forgets it with their common directory, which is removed with the last
 * group.
 */
export class TreeWeight {
  readonly #kernel: CgroupKernel;
  /** The weight's file in the common directory. */
  readonly #file: string;
  #value: string | undefined;
  #isInForce = false;

  constructor(kernel: CgroupKernel, file: string) {
    this.#kernel = kernel;
    this.#file = file;
  }

  /** Takes the value in the kernel's form. */
  async set(value: string): Promise<void> {
    this.#value = value;
    await this.#write();
  }

  /**
   * Must be called when a group was made. `isNewTree` says whether the common directory was made with it, and so needs
   * the weight again.
   */
  async reapply({ isNewTree }: { isNewTree: boolean }): Promise<void> {
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
