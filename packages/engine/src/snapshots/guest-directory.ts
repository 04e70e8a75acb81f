import { guestInside } from "../drivers/gvisor/oci-spec.ts";

/** The directory of the guest in a sandbox's root. It is not part of the sandbox's files. */
export const guestDirectory: string = guestInside.split("/")[1] ?? "";
