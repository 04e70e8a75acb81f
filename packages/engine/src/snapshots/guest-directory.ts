import { guestInside } from "../drivers/gvisor/oci-spec.ts";

/** Where the guest is in a sandbox's root. What a sandbox does there is no part of its files. */
export const guestDirectory: string = guestInside.split("/")[1] ?? "";
