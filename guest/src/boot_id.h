#ifndef ATOLL_BOOT_ID_H
#define ATOLL_BOOT_ID_H

/* Shows another boot id in /proc from now on, because this is not the machine that it was. Returns 0 or an errno. */
int boot_id_renew(void);

#endif
