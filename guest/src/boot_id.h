#ifndef ATOLL_BOOT_ID_H
#define ATOLL_BOOT_ID_H

/* From here on /proc shows another boot id: this is not the machine that it was. 0 or an errno. */
int boot_id_renew(void);

#endif
