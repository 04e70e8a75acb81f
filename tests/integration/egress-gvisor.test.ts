// @module-tag gvisor
import { egressContract } from "../support/egress-contract.ts";

egressContract("gvisor");
