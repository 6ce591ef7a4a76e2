/* A compiler that says what it was asked for: its code is what the driver of fake_cuda.c takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program { char code[64]; char log[64]; };
static long programs, compilations;

long fake_count(int kind) { return kind ? compilations : programs; }

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(unsigned code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int *numbers) { numbers[0] = 75; numbers[1] = 80; numbers[2] = 90; return 0; }
int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
                       const char *const *contents, const char *const *names) {
    if (!strstr(source, "mw_reduce_") || !name || headers || contents || names) return 3;
    *program = calloc(1, sizeof **program);
    programs++;
    return 0;
}
int nvrtcDestroyProgram(struct program **program) { free(*program); *program = NULL; programs--; return 0; }
int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
    compilations++;
    for (int i = 0; i < count; ++i) {
        const char *of = strchr(options[i], '=');
        if (strncmp(options[i], "--gpu-architecture=", 19)) continue;
#ifdef REFUSING
        snprintf(program->log, sizeof program->log, "refused %s", of + 1);
        return 6;
#endif
        snprintf(program->code, sizeof program->code, "fake code for %s", of + 1);
        return 0;
    }
    return 5;
}
int nvrtcGetPTXSize(struct program *program, size_t *size) { *size = strlen(program->code) + 1; return 0; }
int nvrtcGetPTX(struct program *program, char *text) { strcpy(text, program->code); return 0; }
int nvrtcGetCUBINSize(struct program *program, size_t *size) { *size = strlen(program->code) + 1; return 0; }
int nvrtcGetCUBIN(struct program *program, char *text) { strcpy(text, program->code); return 0; }
int nvrtcGetProgramLogSize(struct program *program, size_t *size) { *size = strlen(program->log) + 1; return 0; }
#ifndef WITHOUT_LOG
int nvrtcGetProgramLog(struct program *program, char *text) { strcpy(text, program->log); return 0; }
#endif
